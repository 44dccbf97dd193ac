"""The commands that are processes: `up` and the roles; what prepares for them, and what looks at them."""

import typer

from domain.values import counted
from ops.cli.options import Json
from ops.cli.output import print_fields, print_json
from ops.cli.session import session

app = typer.Typer()
up_app = typer.Typer()


@up_app.command("up", short_help="Run everything on this machine.")
def up() -> None:
    """Run everything on this machine, in the foreground; Ctrl-C drains and stops it."""
    from ops.supervisor import run_up
    from ops.wiring import own_settings

    raise typer.Exit(run_up(own_settings()))


@app.command("migrate", short_help="Bring the database to this version's schema.")
def migrate() -> None:
    """Bring the database to the schema of this version; again does nothing."""
    from ops.wiring import migrate as run
    from ops.wiring import settings

    run(settings())
    print("the database has the schema of this version")


@app.command("reseal", short_help="Encrypt everything with the first master key.")
def reseal(json: Json = False) -> None:
    """Encrypt every stored secret, URL and header anew with the first key of HOOKYARD_MASTER_KEY.

    Once every role runs with the new key first and the old one after it; afterwards the old one may go.
    """
    from storage.sealed import reseal

    with session() as now:
        done = reseal(now.store, now.vault, actor=now.actor)
    if json:
        print_json({"resealed": done, "master_key": now.vault.first})
        return
    was = f"{counted(done, 'value is', 'values are')} sealed anew" if done else "nothing to do: everything is sealed"
    print(f"{was} with master key {now.vault.first}")


@app.command("ingest", short_help="Run an ingest process.")
def ingest() -> None:
    """Run one ingest process: the public edge that stores events."""
    from ops.wiring import role_settings, run_ingest

    run_ingest(role_settings("ingest"))


@app.command("worker", short_help="Run a worker process.")
def worker() -> None:
    """Run one worker process: it owns partners and delivers their events."""
    from ops.wiring import role_settings, run_worker

    run_worker(role_settings("worker"))


@app.command("jobs")
def jobs() -> None:
    """Run the background jobs."""
    from ops.wiring import role_settings, run_jobs

    run_jobs(role_settings("jobs"))


@app.command("ops", short_help="Run dashboard, admin API and metrics.")
def ops() -> None:
    """Run the dashboard, the admin API and the metrics."""
    from ops.wiring import role_settings, run_ops

    run_ops(role_settings("ops"))


@app.command("config")
def config(json: Json = False) -> None:
    """Show the effective settings, secrets hidden."""
    from ops.datadir import has_generated_token
    from ops.settings import describe
    from ops.wiring import known_settings

    settings = known_settings()
    told = describe(settings)
    if has_generated_token(settings):
        told["HOOKYARD_ADMIN_TOKEN"] = "*** (generated)"  # noqa: S105 - says only that there is one
    if json:
        print_json(told)
        return
    print("\n".join(f"{name}={value}" for name, value in told.items()))


@app.command("doctor", short_help="Check whether everything is well.")
def doctor(json: Json = False) -> None:
    """Check settings, schema, servers, durability, clocks, leases, stuck work and what is sealed.

    Exit code 1 if anything is wrong.
    """
    from ops.doctor import document, examine, is_healthy

    findings = examine()
    healthy = is_healthy(findings)
    if json:
        print_json(document(findings))
    else:
        print_fields({("ok    " if f.ok else "WRONG ") + f.check: f.message for f in findings})
        print("healthy" if healthy else "not healthy")
    if not healthy:
        raise typer.Exit(1)
