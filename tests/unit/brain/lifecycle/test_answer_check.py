"""The check of an answer against its sources: what stands in them or can be made of them, and what is invented."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.lifecycle.answer_check import MOST_CHARS, unsupported

HEALTH = (
    '{"hostname":"web-03","cpu":{"cores":8,"load_1m":1.52,"percent":47.3},"memory":{"total":16777216000,'
    '"used":9831055360,"percent":58.6},"uptime_seconds":356712,"boot":"2026-11-24T00:28:11Z"}'
)
FILES = "[FILE] readme.md\n[DIR] src\n[FILE] setup.py\n[FILE] notes.txt\nallowed: /srv/data/project"
SALES = "name,region,revenue,units\nAlpha,EU,1200.50,30\nBeta,US,980.25,22\nGamma,EU,455.00,11\nDelta,APAC,2011.75,64"
LOG = (
    "2026-11-27 03:12:44 ERROR db: connection refused to 10.0.4.17:5432\n"
    "2026-11-27 03:12:50 WARN cache: evicted 1204 keys\n"
    "2026-11-27 03:13:02 ERROR db: connection refused to 10.0.4.17:5432\n"
    "2026-11-27 03:14:11 ERROR api: upstream timed out after 30s (request 7f3a9c21-aa10-4b5e-9d11-2f30c0de1a77)"
)
COMMIT = (
    "commit 4f2d91ac8b (HEAD -> main)\nAuthor: Ana Souza <ana@example.org>\nDate: Tue Nov 24 10:02:11 2026 +0100\n\n"
    "    Fix rounding in src/billing/invoice.py:142\n\n 3 files changed, 57 insertions(+), 12 deletions(-)"
)
ADDRESS = "https://www.postgresql.org/about/news/postgresql-184-released-3012/"
NEWS = (
    '# Postgres 18.4 released\n\nVersion 18.4 came out on 14 August 2026. It fixes "a race in logical replication" '
    f"and 38 bugs. See {ADDRESS}. Downloads grew by 12.5% to 1,234,567."
)
ORDERS = (
    '{"items":[{"id":"ORD-1001","total":19.99,"status":"paid"},{"id":"ORD-1002","total":5.5,"status":"open"},'
    '{"id":"ORD-1003","total":120.0,"status":"paid"}],"currency":"EUR"}'
)
MEETINGS = '[{"title":"Sprint review","start":"2026-12-01T10:00:00+01:00","end":"2026-12-01T11:30:00+01:00"}]'
PODS = (
    "api-7d9c5b6f4-2xkqp 1/1 Running 0\napi-7d9c5b6f4-9zzlm 1/1 Running 2\nworker-5f6b8c9d7-abc 0/1 CrashLoopBackOff 17"
)

SUPPORTED = [
    ("Both have 734,921 and 100 blocks, 735,021 together; about 735 thousand.", "a: 734921\nb: 100\nc: 0"),
    ("CPU is at 47.3 % on web-03 with 8 cores [1].", HEALTH),
    ("Der Speicher ist zu 58,6 % belegt, die Last beträgt 1,52 [1].", HEALTH),
    ("About 9.8 GB of 16.8 GB are used, i.e. 9.16 GiB or 59 %; 6.9 GB (41.4 %) are free.", HEALTH),
    ("It has been up for 4 days, 3 hours and 5 minutes, about 99 hours, since 24 November 2026.", HEALTH),
    ("The folder has 3 files and 1 folder: `readme.md`, `setup.py`, `notes.txt` and `src`.", FILES),
    ('The 4 entries of "/srv/data/project": /srv/data/project/readme.md, /srv/data/project/src and 2 more.', FILES),
    ("| Name | Revenue |\n|---|---:|\n| Alpha | 1,200.50 |\n| Beta | 980.25 |\n| **Total** | **4,647.50** |", SALES),
    ("Insgesamt 4.647,50 € mit 127 Stück, im Mittel 1.161,88; EU zusammen 1.655,50.", SALES),
    ("1. Alpha: 1 200,50\n2. Beta: 980,25\n3. Delta: $2,012 (43 % of 4,647.50), see step 3.", SALES),
    ("Alpha is 220.25 above Beta (1200.50 - 980.25); the range is 455–2,012.", SALES),
    ("There are 3 errors; two say “connection refused to 10.0.4.17:5432” [1].", LOG),
    ("At 3:14 AM it “timed out after 30s” (request 7f3a9c21-aa10-4b5e-9d11-2f30c0de1a77), 1,204 keys were gone.", LOG),
    ("Es gab 3 Fehler auf Port 5432 am 27.11.2026 um 03:12 Uhr.", LOG),
    ("Commit `4f2d91ac8b` by Ana Souza (ana@example.org) changed 3 files: +57/-12, 69 lines.", COMMIT),
    ("Ana fixed `src/billing/invoice.py:142`, i.e. invoice.py, line 142; 'main' is her branch, don't worry.", COMMIT),
    (f"PostgreSQL 18 (18.4, August 14, 2026) has 38 fixes ([news]({ADDRESS})).", NEWS),
    ("It fixes “a race … replication”. Downloads grew by 12.5 percent to about 1.2 million (1.23M).", NEWS),
    ("Il corrige «\u00a0a race in logical replication\u00a0» ; 1 234 567 téléchargements.", NEWS),
    ("Paid are ORD-1001 (€19.99) and 1003 (120.00 EUR), together 139.99; all 3 come to 145.49 EUR.", ORDERS),
    ("“Sprint review” is from 10:00 to 11:30 (90 minutes) on 1 December.", MEETINGS),
    ("3 of 3 pods: `worker-5f6b8c9d7-abc` restarted 17 times, all together 19 times; db is 'Running'.", PODS),
    ("東京は気温12度、湿度58%です。総数は123万件。", "気温: 12 湿度: 58% 1,234,567"),
    ("There are 4 servers, 12 %.", "The four servers are up: 0.12"),
    ("It is 09:41 in Lima, 14:41 UTC.", '{"datetime":"2026-11-27T09:41:08-05:00"}'),
    (
        "See C:\\Users\\ana\\x.txt and https://x.org/a?b=1.",
        '{"p":"C:\\\\Users\\\\ana\\\\x.txt","u":"https:\\/\\/x.org\\/a?b=1"}',
    ),
    ("Run this:\n\n```sh\ncurl -m 77 http://other.org/x\n```\n\nNothing else in the last 24 hours.", "none"),
    ('{"disk": "fine", "used": 47.3}', HEALTH),
    ("Call +41 44 123 45 67 by 10.30 Uhr.", "tel +41 44 123 45 67, 10:30"),
    ("In all 4,912.4 kg, i.e. 1,228.1 each: 1,000.2, 980.2, 1,731.9 and 1,200.1.", "1000.2 980.2 1731.9 1200.1"),
    ("It is 38.7 m (127 ft) high and 1,449 K (2,150 °F) hot; the mass is 5.4 × 10¹⁰ kg.", "38.7 1449 54000000000.0"),
    ("It runs for 412 days, until 3 May 2031 at 17:45; look with `grep -c 500 /var/log/other.log`.", "none"),
    ("The 'twin' is \"dead\": about 1,300 of nearly 80,000 rows, 8 times as many as in 1.x.", "1,312 of 79,800"),
    ("El vuelo sale a las 7:35 y llega a las 9:05: dura 1 h 30 min.", "dep 07:35 arr 09:05"),
    ("2 tasks, 1 done (50 %), changed on 3.11. at 8:15 with v2.3.1.", "A: done\nB: open\n2026-11-03T08:15:22 2.3.1"),
    (
        "CHF 1'200 a night, for 3 nights 3'600; ₹1,50,000 is 1.5 lakh; 21 °C is 70 °F.",
        "1200 chf, 3 nights, 150000, 21.3 C",
    ),
    (
        "2 × mug at €8.50 and 1 × poster at €12.00 are €29.00; with €4.90 shipping, €33.90 in total.",
        '{"items":[{"item":"mug","qty":2,"price":8.5},{"item":"poster","qty":1,"price":12}],"shipping":4.9}',
    ),
    ("Der Kurs fiel von 104,20 auf 99,85, also um 4,35 Punkte bzw. 4,2 %.", "open=104.20 close=99.85"),
    (
        "Revenue rose 8.3 % to $3.9 billion from $3.6 billion; 62 % said yes.",
        "3900000000, 3600000000\nyes 932\nno 572\nall 1504",
    ),
    ("EU has 33.3 %, APAC 66.7 %; the p95 is 640 ms.", "EU 300\nAPAC 600\n\nlatency 640 ms"),
    (
        "NOK 12,840.50 for 82.5 % of it, 2.5 percentage points more than 80 %.",
        "balance_cents 1284050, off 17.5%, May 80%",
    ),
    (
        "Call +41 44 555 12 90 about DE89 3704 0044 0532 0130 00 and card 4417.",
        "+41445551290 DE89370400440532013000 4929123456784417",
    ),
    (
        "It uses 1.2–3.4 MB, 5.5 of 16.4 GB.",
        '{"least": 1200000, "most": 3400000, "used": 5500000000, "total": 16400000000}',
    ),
    (
        "There were 357 errors at a p95 of up to 640 ms.",
        "route,n,p50_ms,p95_ms,errors\n/a,2,41,212,12\n/b,8,88,640,301\n/c,9,90,333,44",
    ),
    ("Three nights are 1167 zł. In `a` about 37 are `b c`, and `m -p 99.5` is advice.", "389 zł a night; a, b c: 37"),
    (
        "It rose by 139 from 273 to 412; the median was 345.5.",
        "".join(f"day {412 - n}\n" for n in (139, 133, 121, 106, 91, 76, 57, 52, 31, 9, 4, 0)),
    ),
    ("At 93.4 Mbit/s, i.e. 11.7 MB/s, it takes an hour, over 97 km (60.3 miles).", "93.4 Mbit/s, 97 km"),
    ("### 1. Disks\n\nEither/or, and/or; 5/8 are done [1, 2].", "5 of 8"),
]
INVENTED = [
    ("It has 7349210 blocks [1].", "It has 734921 blocks.", ["7349210"]),
    ("It has 7349 blocks [1].", "It has 734921 blocks.", ["7349"]),
    ("See https://evil.example/steal [1].", "See /srv/data/blocks.yaml.", ["https://evil.example/steal"]),
    ("CPU is at 52.3 % on web-03 [1].", HEALTH, ["52.3"]),
    ("CPU is at 47.3 % on web-07 [1].", HEALTH, ["web-07"]),
    ("It has 12.9 GB of memory, a load of 3.17 and costs €45.50.", HEALTH, ["12.9", "3.17", "45.50"]),
    ("See readme.md, /srv/data/project/config.yaml and `/etc/secret.conf`.", FILES, 2),
    ("Revenue is 4,812.50, Alpha had 1,300.50.", SALES, ["4,812.50", "1,300.50"]),
    ("The log says “disk quota exceeded on volume” for 1,402 keys.", LOG, 2),
    ("The server 10.0.4.18 refused request 7f3a9c21-aa10-4b5e-9d11-2f30c0de1a78.", LOG, 2),
    (
        "Es waren 1.350 Schlüssel, „davon viele sehr alte Schlüssel“.",
        LOG,
        ["1.350", "„davon viele sehr alte Schlüssel“"],
    ),
    ("Commit `9ab31f00de` fixed src/billing/tax.py:142 and src/billing/invoice.py:977 for bob@example.org.", COMMIT, 4),
    ("Postgres 19.7 has 457 fixes; see https://www.postgresql.org/docs/18/notes.html.", NEWS, 3),
    ('ORD-1009 is "never paid" and costs €89.90.', ORDERS, ["ORD-1009", '"never paid"', "89.90"]),
    ("He said 'we will never ship this' to «le grand public».", NEWS, 2),
    ("気温は19.4度です。", "気温: 12.1", ["19.4"]),
    ("The pulse is 44 bpm, at $49 with 2 years.", "41 bpm, $59", ["44", "49"]),
    ("Of `events`, about 37 % is bloat that `VACUUM FULL` frees.", "events | 412 GB", ["37"]),
    ("Web-07; call +41 44 555 12 91, card 4418.", "web-03 +41445551290 4929123456784417", 3),
    ("Send `GET /v2/users/{id}/keys` with `id=7`; `9f3ab27c` is v3.4.9.", "GET /v2/users, v3.4.8", 3),
]


@pytest.mark.parametrize(("answer", "source"), SUPPORTED)
def test_what_a_source_has_or_adds_up_to_is_supported(answer: str, source: str) -> None:
    assert not unsupported(answer, [source], [])


@pytest.mark.parametrize(("answer", "source", "invented"), INVENTED)
def test_what_no_source_has_is_found_where_it_stands(answer: str, source: str, invented: list[str] | int) -> None:
    found = unsupported(answer, [source], [])

    assert (len(found) if isinstance(invented, int) else [one.text for one in found]) == invented
    assert all(answer[one.start : one.end] == one.text for one in found)


def test_what_was_said_is_supported() -> None:
    answer = "You asked for 50 results of “my best orders” in /srv/x; 100 USD are 92.13 EUR."

    assert unsupported(answer, ['{"EUR": 0.9213}'], ["50 results of my best orders in /srv/x; 100 USD"]) == []
    assert unsupported("Take 284 g of water.", ["4 balls: 610 g flour, 378 g water"], ["for 3 pizzas"]) == []


def test_nothing_is_found_in_an_answer_from_sources_beyond_the_bound() -> None:
    assert unsupported("It is 47.3 %.", ["no number"], [])
    assert unsupported("It is 47.3 %.", ["no number" * MOST_CHARS], []) == ()


def test_first_passages_of_an_answer_with_very_many_are_checked() -> None:
    found = unsupported("; ".join(f"/srv/{number}/x.txt" for number in range(205)), ["none"], [])

    assert [one.text for one in (found[0], found[-1])] == ["/srv/0/x.txt", "/srv/199/x.txt"]


PLAIN = st.text(st.sampled_from("ab 19.,:%-/'\"`“”„«»()[]|*#_\n€é中"), max_size=60)


@given(PLAIN)
def test_a_copy_of_its_source_is_never_marked(text: str) -> None:
    assert not unsupported(text, [text], [])


@given(PLAIN, PLAIN)
def test_passages_are_in_order_and_apart(answer: str, source: str) -> None:
    found = unsupported(answer, [source], [])

    assert all(answer[one.start : one.end] == one.text for one in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
