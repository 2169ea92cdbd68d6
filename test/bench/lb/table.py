#!/usr/bin/env python3
"""Prints proxybench results as tables: median (least - most) and, in bold, the
median of the ratios to haproxy-t2 in the same repeat."""
import collections, json, statistics, sys

ROWS = [
    ("lat:2000", "cpu_ms_per_10k_req", "CPU ms per 10k kept requests", 0),
    ("lat:2000", "ms_p50", "kept requests, p50 ms", 2),
    ("lat:2000", "ms_p99", "kept requests, p99 ms", 1),
    ("rate", "cpu_s_per_10k", "CPU s per 10k short connections", 2),
    ("rate", "per_s", "short connections a second", 0),
    ("bulk:1", "down_cpu_s_per_gb", "CPU s per GB down, 1 stream", 2),
    ("bulk:1", "up_cpu_s_per_gb", "CPU s per GB up, 1 stream", 2),
    ("bulk:8", "down_cpu_s_per_gb", "CPU s per GB down, 8 streams", 2),
    ("bulk:8", "up_cpu_s_per_gb", "CPU s per GB up, 8 streams", 2),
    ("bulk:1", "down_gb_s", "GB/s down, 1 stream", 2),
    ("bulk:8", "down_gb_s", "GB/s down, 8 streams", 2),
    ("idle:3000", "kb_per_conn_idle", "PSS KB per held pair", 2),
    ("idle:3000", "fds_per_conn", "descriptors per held pair", 2),
    ("idle:3000", "cast_cpu_ms_per_10k_msgs", "CPU ms per 10k broadcast messages", 0),
    ("idle:3000", "cast_ms_p50", "whole broadcast, ms", 0),
]

runs, errors = collections.defaultdict(dict), []
for path in sys.argv[1:]:
    for line in open(path):
        r = json.loads(line)
        runs[r["scenario"], r["proxy"]][r["rep"]] = r
        bad = r.get("failed") and not r["scenario"].startswith("fail:")
        if "error" in r or bad or any(k.endswith("missing_bytes") for k in r) or r.get("lost"):
            errors.append(r)
names = list(dict.fromkeys(p for _, p in runs))


def cell(scenario, proxy, field, digits):
    mine, ref = runs.get((scenario, proxy), {}), runs.get((scenario, "haproxy-t2"), {})
    v = [r[field] for r in mine.values() if field in r]
    if not v:
        return ""
    text = "%.*f (%.*f - %.*f)" % (digits, statistics.median(v), digits, min(v), digits, max(v))
    ratios = [r[field] / ref[k][field] for k, r in mine.items() if field in r and ref.get(k, {}).get(field)]
    if ratios and proxy != "haproxy-t2":
        text += " **%.2f**" % statistics.median(ratios)
    return text


def table(head, rows):
    rows = [r for r in rows if any(r[1:])]
    if not rows:
        return
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for r in rows:
        print("| " + " | ".join(r) + " |")


table(["measure"] + names, [[what] + [cell(s, p, f, d) for p in names] for s, f, what, d in ROWS])
rows = []
for s in ("fail:kill", "fail:stall", "fail:hole"):
    for p in names:
        for r in sorted(runs.get((s, p), {}).values(), key=lambda r: r["rep"]):
            if "requests" in r:
                rows.append([s, p, "%d of %d" % (r["failed"], r["requests"]), "%.0f / %.0f" % (r["during_ms_p99"], r["during_ms_max"]),
                             "%s -> %s" % (r["held_start"], r["held_end"]),
                             "%.1f / %.1f" % (r["held_first_cut_s"], r["held_last_cut_s"]) if "held_last_cut_s" in r else "never"])
# The backend is back after 7.5 s: what is cut later is cut to balance.
table(["failure", "proxy", "failed requests", "p99 / max ms while it lasts", "held per backend", "first / last cut after s"], rows)
busy = [r["machine_busy_pct"] for v in runs.values() for r in v.values() if "machine_busy_pct" in r]
if busy:
    print("\nmachine busy: median %.0f %%" % statistics.median(busy))
for r in errors:
    print("TROUBLE", json.dumps(r))
sys.exit(1 if errors else 0)
