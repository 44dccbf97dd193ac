"""Which URLs a destination may have, and what a person is told about the others."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.urls import BadURL, normal_form, parse, redact


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook", "https://example.com:8443/hook", "http://localhost/", "https://example.com./",
        "http://h_x/", "http://127.0.0.1:8080/", "https://[::1]:9876/", "http://[::ffff:7f00:1]/",
        "http://xn--n3h.test/", "http://h/%7e%2F;a=b?x=a%20b&c=%zz|{}", "http://h/a[1]?b[2]=3", "http://h//a//",
        "http://h/?", "http://h/x:y@z!$&'()*+,;=~", "https://metadata.google.internal/", "https://example.com:22/",
        "http://h:1/", "http://h:65535/",
    ],
)  # fmt: skip
def test_a_url_in_normal_form_is_taken_as_it_is(url: str) -> None:
    assert normal_form(url) == url
    target = parse(url)
    assert url == f"{target.scheme}://{target.authority}{target.path}"


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://Host.EXAMPLE:80", "http://host.example/"),
        ("https://h:443/x", "https://h/x"),
        ("http://h:080/", "http://h/"),
        ("http://h:/", "http://h/"),
        ("http://h?x", "http://h/?x"),
        ("http://h/a/../b", "http://h/b"),
        ("http://h/%2e%2E/x/.", "http://h/x/"),
        ("http://h/../..", "http://h/"),
        ("http://h/a b?c d", "http://h/a%20b?c%20d"),
        ("http://h/a\\b", "http://h/a/b"),
        ("http://h/☃?é", "http://h/%E2%98%83?%C3%A9"),
        ("http://☃.test/", "http://xn--n3h.test/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://0177.0.0.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0/", "http://0.0.0.0/"),
        ("http://①②⑦.⓪.⓪.①/", "http://127.0.0.1/"),
        ("http://127.0.0.1./", "http://127.0.0.1/"),
        ("http://[0:0::1]/", "http://[::1]/"),
        ("http://[::FFFF:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
        ("http://LOCALHOST/", "http://localhost/"),
    ],
)
def test_another_spelling_is_refused_with_the_form_it_should_have(url: str, normal: str) -> None:
    with pytest.raises(BadURL) as refusal:
        parse(url)
    assert str(refusal.value).endswith(f"write {normal}")
    assert normal_form(normal) == normal


@pytest.mark.parametrize(
    "url",
    [
        "", "notaurl", "//h/x", "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1:6379/_", "http:h/x",
        "javascript:alert(1)", "http://", "http:///x", "https:///path", "http://[::1", "http://[::1]x/",
        "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[1::2::3]/", "http://h:99999/",
        "http://h:999999999999/", "http://h:0/", "http://h:port/", "http://h:８０/", "http://h:-1/", "http://h:1:2/",
        "http://exa\nmple.com/", "http://exa mple.com/", "http://h/\tx", " http://h/", "http://h/ ", "http://h/\x00",
        "http://xn--a/", "http://xn--/", "http://" + "l" * 70 + ".test/", "http://" + "a." * 130 + "test/",
        "http://.com/", "http://h..b/", "http://-a/", "http://a%41b/", "http://h|x/", "http://a*b/", "http://faß.de/",
        "http://1.2.3.256/", "http://4294967296/", "http://a.1/", "http://08/", "http://1.2.3.4.5/", "http://0xg.1/",
        "https://user:pw@example.com/hook", "https://1:2@[::1]:9876/", "https://127.0.0.1:80@evil.example/",
        "http://evil\\@127.0.0.1/", "http://a@b@h/", "https://example.com/#frag", "http://h/" + "a" * 5000,
        "http://h/\ud800", "http://h\ud800/",
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_destination_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(BadURL) as refusal:
        parse(url)
    assert "\n" not in str(refusal.value)
    assert "pw" not in str(refusal.value)


@given(
    st.text(max_size=40),
    st.sampled_from(["http://", "https://", "http://h/", "http://h?", "http://[", "", "http://1."]),
)
def test_any_text_is_a_url_in_normal_form_or_refused(text: str, start: str) -> None:
    try:
        normal = normal_form(start + text)
    except BadURL:
        return
    assert normal_form(normal) == normal
    assert normal.isascii()
    assert not set(normal) & set(' \t\r\n"<>#')


def test_credentials_in_a_url_are_refused_with_the_way_to_give_them() -> None:
    with pytest.raises(BadURL, match="Authorization"):
        parse("https://user@example.com/hook")


def test_a_literal_host_is_known_to_be_one() -> None:
    assert parse("http://[::1]:81/x?y").address == ip_address("::1")
    assert parse("http://10.0.0.1/").address == ip_address("10.0.0.1")
    assert parse("http://h/").address is None


def test_a_redacted_url_keeps_the_place_and_no_secret() -> None:
    assert redact("http://u:SECRET@h:81/PATHTOKEN?tok=Q") == "http://h:81/…"
    assert redact("https://example.com/") == "https://example.com/"
    assert redact("http://h?tok=Q") == "http://h/…"
    assert redact("SECRET") == "…"
