"""Tokens are hidden by their form, anywhere in a text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.storage import without_secrets
from qbench.storage.hidden_secrets import FORMS

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

# Each is put together here, so that no scanner of repositories takes it for a real one.
TOKENS = {
    "Hugging Face": "hf_" + LETTERS,
    "GitHub": "ghp_" + LETTERS,
    "GitHub, with fine rights": "github_pat_11AB_" + LETTERS,
    "GitLab": "glpat-" + LETTERS[:20],
    "Amazon": "AKIA" + "IOSFODNN7EXAMPLE",
    "services of models": "sk-proj-" + LETTERS,
    "Slack": "xoxb-" + "1234567890-" + LETTERS,
    "PyPI": "pypi-AgEI" + LETTERS,
    "JSON Web Token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0." + LETTERS,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_token_is_hidden_by_its_form_alone(form):
    token = TOKENS[form]
    assert without_secrets(token, {}) == "…"
    assert without_secrets(f"refused '{token}', as it ended", {}) == "refused '…', as it ended"


@pytest.mark.parametrize("token", ["gho_" + LETTERS, "ASIA" + "IOSFODNN7EXAMPLE"])
def test_the_other_beginnings_of_a_form_are_known(token):
    assert without_secrets(f"with {token}", {}) == "with …"


@pytest.mark.parametrize(
    "text",
    [
        "MY_TOKEN= Bearer abcdefghijklmnop",
        "MY_TOKEN=Bearer abcdefghijklmnop",
        "Authorization: Bearer abcdefghijklmnop",
        "Bearer abcdefghijklmnop",
    ],
)
def test_what_follows_the_word_bearer_is_hidden(text):
    assert "abcdefgh" not in without_secrets(text, {})


@pytest.mark.parametrize(
    "text",
    [
        "a task-oriented-dialogue-model after global-average-pooling-of-all",
        "/cache/half_float_weights_of_this_model/hf_models",
        "pypi-server-of-this-house sk-learn glibc-2.35 the bearer of it",
        "the layer conv2d_hf_1.weight, scale 0.0078125",
        "sha256 " + "0123456789abcdef" * 4,
    ],
)
def test_ordinary_words_stay(text):
    assert without_secrets(text, {}) == text


WORD = "hunter2"
HIDING = (
    "https://me:{}@host/x",
    "https://a.blob.example/c?sv=2024&sig={}&se=1",
    "https://host/x?X-Amz-Signature={}",
    "https://host/?token={}&x=1",
    "run --password {} --samples 3",
    "run --password={}",
    "run --access-token '{}'",
    "Cookie: session={}; path=/",
    "Set-Cookie: session={}",
    "Authorization: Basic {}",
    "Authorization: Digest username=me, response={}",
    "{{'Authorization': 'Bearer {}', 'x': 1}}",
    "X-Api-Key: {}",
    "curl -u user:{} https://host",
    "curl --user 'user:{}' https://host",
    "curl -uuser:{}",
    "PGPASSWORD={}",
    "clientSecret: {}",
    "AccountKey={};EndpointSuffix=x",
    "tokenizer: password={}",
    '{{"access_token": "{}"}}',
    "auth_token_v2={}",
    "api_tokens: {}",
    "access_tokens={{{}}}",
    "X-Amz-Security-Token-Id: {}",
    'Cookie: sid="{}"; path=/',
    'Authorization: Digest username="bob", response="{}"',
    """curl -H 'Authorization: Digest response="{}"' https://host""",
    '{{"cookie": "a=\\"b\\"; sid={}"}}',
)


@pytest.mark.parametrize("form", HIDING)
def test_a_secret_is_hidden_in_each_form(form):
    hidden = without_secrets(form.format(WORD), {})
    assert WORD not in hidden
    assert "…" in hidden


@given(
    form=st.sampled_from(HIDING),
    secret=st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=8),
    before=st.text(st.sampled_from("a :=-'\n")),
)
def test_a_secret_is_hidden_behind_anything(form, secret, before):
    secret = f"x{secret}"  # no form has it
    hidden = without_secrets(f"{before} {form.format(secret)}", {})
    assert secret not in re.sub("[…]", "", hidden)


def test_a_login_without_its_header_is_known_by_what_it_encodes():
    assert without_secrets("refused Basic dXNlcjpwYXNz", {}) == "refused Basic …"


@pytest.mark.parametrize(
    "text", ['"signature": "3fa9c1d2e4b56a78"', "bearer secretsecretsecret"], ids=str
)
def test_what_looks_like_a_credential_is_hidden(text):
    assert text[-9:-2] not in without_secrets(text, {})


def test_what_stands_around_a_header_stays():
    text = """curl -H 'Cookie: sid="a b"' -x https://host"""
    assert without_secrets(text, {}) == "curl -H 'Cookie: …' -x https://host"
    text = "{'Authorization': 'Bearer x', 'x': 1}"
    assert without_secrets(text, {}) == "{'Authorization': 'Bearer …', 'x': 1}"


@pytest.mark.parametrize(
    "name", ["HF_TOKENS", "GITHUBTOKENS", "TOKENS_X", "AWS_SIGNATURE", "MY_KEY", "token"]
)
def test_values_of_secret_variables_are_hidden(name):
    assert without_secrets("it said hunter2", {name: "hunter2"}) == "it said …"


@pytest.mark.parametrize("name", ["TOKENIZER_PATH", "HOME", "MONKEY"])
def test_values_of_other_variables_stay(name):
    assert without_secrets("it said hunter2", {name: "hunter2"}) == "it said hunter2"


@pytest.mark.parametrize("letter", ["a", "a-", "a.", "ab://", "?", "cookie:", "basic ", "-u ", "'"])
def test_a_long_text_takes_time_with_its_length(letter):
    """At once; with the square of its length, no end is seen."""
    text = letter * (200_000 // len(letter))
    assert without_secrets(text + "!", {})


STAYING = (
    "basic calibration",
    "Basic characterization of it",
    "basic ResNet50",
    "bearer certificate",
    "max_new_tokens=512",
    "max_new_tokens=all",
    "tokens: those of a text",
    "input_tokens: windows of them",
    "tokenizer: gpt2",
    "TOKENIZERS_PARALLELISM=false",
    "eos_token=</s>",
    "seconds per token: 0.25",
    "token_kl: 0.00093, token_top1=348",
    "signature: serving_default",
    "docker run -u 1000:1000 image",
    "sort -u names",
    "--max-new-tokens 512 --token-kl most",
    "--password --verbose",
    "a monkey=3",
)


@pytest.mark.parametrize("text", STAYING)
def test_what_only_looks_like_a_secret_stays(text):
    assert without_secrets(text, {}) == text


@given(st.lists(st.sampled_from(STAYING)).map("\n".join))
def test_what_stays_alone_stays_together(text):
    assert without_secrets(text, {}) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters=":=@?&-'\"")))
def test_text_without_a_name_for_its_parts_stays(text):
    without_words = re.sub("(?i)bearer|basic|cookie", "", text)
    assert without_secrets(without_words, {}) == without_words
