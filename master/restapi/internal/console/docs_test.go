package console

import (
	"crypto/sha256"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// docFleet is the fleet of the pictures in the documentation: 2,000 minions whose numbers are the same on
// all pages.
type docFleet struct {
	minions []any
	runs    *value.Map
	grains  *value.Map
	counts  map[string]int // minions by the result of the last run
	drifted int
	failing map[string]int // minions by the state that fails
}

func newDocFleet() *docFleet {
	f := &docFleet{runs: value.NewMap(), grains: value.NewMap(), counts: map[string]int{}, failing: map[string]int{}}
	for i := range 2000 {
		id := fmt.Sprintf("web%04d.example.com", i)
		away := i%100 == 23
		seen := now().Add(-time.Duration(i%600) * time.Second)
		if away {
			seen = now().Add(-43*time.Hour + time.Duration(i%23)*time.Minute)
		}
		f.minions = append(f.minions, value.NewMap("id", id, "key", "accepted", "connected", !away,
			"address", fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), "seen", float64(seen.Unix())))
		f.grains.Set(id, value.NewMap("osfinger", []string{"Debian-12", "Debian-13", "Ubuntu-24.04"}[i%3], "saltversion", "3008.3",
			"ipv4", []any{fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)}))
		f.addRun(i, id)
	}
	return f
}

// addRun adds the last run of a minion: last night at 02:00, as of all.
func (f *docFleet) addRun(i int, id string) {
	run := value.NewMap("result", "ok", "time", "2026-11-24T02:00:00Z", "jid", "20261124020000000000", "function", "state.apply",
		"ok", int64(38), "changed", int64(0), "failed", int64(0), "drifted", int64(0))
	switch {
	case i == 1999: // its key was accepted this afternoon
		run = value.NewMap("result", "never")
	case i%400 == 13:
		run.Set("result", "error")
		run.Set("ok", int64(0))
	case i%50 == 7:
		run.Set("result", "failed")
		run.Set("failed", int64(1))
		f.failing[[]string{"nginx", "packages", "nginx", "nginx"}[i/50%4]]++
	case i%800 == 4:
		run.Set("result", "changed")
		run.Set("changed", int64(1))
		run.Set("drifted", int64(1))
		f.drifted++
	case i%100 == 11: // a test of this afternoon
		run.Set("result", "would_change")
		run.Set("time", "2026-11-24T13:10:00Z")
		run.Set("jid", "20261124131000000000")
	case i%9 == 1:
		run.Set("result", "changed")
		run.Set("changed", int64(2))
	}
	if i%100 == 23 { // it is not connected
		run.Set("time", "2026-11-22T02:00:00Z")
		run.Set("jid", "20261122020000000000")
	}
	if i/10 == 10 && i != 103 { // the job of a minute ago; one has not answered
		if run.Str("result") != "failed" {
			run.Set("result", "changed")
			run.Set("changed", int64(2))
		}
		run.Set("ok", int64(3))
		run.Set("time", "2026-11-24T15:59:10Z")
		run.Set("jid", "20261124155910000000")
	}
	f.counts[run.Str("result")]++
	f.runs.Set(id, run)
}

// trend is the answer of fleet.trend.
func (f *docFleet) trend() *value.Map {
	last := value.NewMap()
	for name, n := range f.counts {
		last.Set(name, int64(n))
	}
	days := []any{}
	for i := range 31 {
		failed := f.counts["failed"] + 12 - i%7*2 + max(0, 26-4*int(math.Abs(float64(i-18))))
		changed := f.counts["changed"] + 40*(i%4)
		answered, absent := 8, 18+i%3
		if i == 30 { // today: what the last runs say
			failed, changed = f.counts["failed"], f.counts["changed"]
			answered, absent = f.counts["never"], 20
		}
		day := value.NewMap("day", now().AddDate(0, 0, i-30).Format(time.DateOnly), "changed", int64(changed), "failed", int64(failed),
			"error", int64(5), "would_change", int64(f.counts["would_change"]), "answered", int64(answered), "absent", int64(absent))
		day.Set("ok", int64(2000-failed-changed-5-f.counts["would_change"]-answered-absent))
		days = append(days, day)
	}
	row := func(id, function string, minions int, minion, comment string) any {
		return value.NewMap("id", id, "function", function, "minions", int64(minions), "minion", minion, "comment", comment)
	}
	slow := func(id, function, minion string, seconds float64) any {
		return value.NewMap("id", id, "function", function, "minions", int64(1), "minion", minion, "seconds", seconds)
	}
	drift := func(minion string) any {
		return value.NewMap("minion", minion, "time", "2026-11-24T02:00:00Z", "jid", "20261124020000000000", "id", "sshd_config",
			"function", "file.managed", "cause", "drift", "changes", "-PermitRootLogin yes\n+PermitRootLogin no", "corrected", true)
	}
	return value.NewMap("minions", int64(2000), "drifted", int64(f.drifted), "days", days, "last_run", last,
		"worst_states", []any{
			row("nginx", "service.running", f.failing["nginx"], "web0007.example.com", "Job for nginx.service failed because the control process exited with error code."),
			row("packages", "pkg.installed", f.failing["packages"], "web0057.example.com", "E: Could not get lock /var/lib/dpkg/lock-frontend."),
		},
		"slowest_states", []any{
			slow("packages", "pkg.installed", "web1207.example.com", 83.2),
			slow("certificates", "cmd.run", "web0311.example.com", 12.4),
		},
		"drift", []any{drift("web0004.example.com"), drift("web0804.example.com"), drift("web1604.example.com")})
}

// docJobs are the newest jobs, the oldest first, and what became of them.
func docJobs() (list []any, outcomes *value.Map) {
	rows := []any{}
	add := func(age time.Duration, function, target, user string, arg []any, ok, failed, absent int, more ...any) {
		at := now().Add(-age)
		jid := at.Format("20060102150405") + "000000"
		list = append(list, value.NewMap("JID", jid, "Function", function, "Arguments", arg, "Target", target, "Target-type", "glob",
			"User", user, "StartTime", at.Format("2006, Jan 02 15:04:05.000000")))
		row := value.NewMap("jid", jid, "time", at.Format(time.RFC3339), "function", function, "user", user,
			"ok", int64(ok), "failed", int64(failed), "absent", int64(absent))
		for i := 0; i < len(more); i += 2 {
			row.Set(more[i], int64(more[i+1].(int)))
		}
		rows = append(rows, row)
	}
	add(20*time.Second, "service.restart", "web*", "otto", []any{"nginx"}, 10, 0, 25, "minions", 2000, "pending", 1965, "left_out", 20) // the saved job restart, five at a time; 20 did not answer the ping
	add(50*time.Second, "state.apply", "web010*", "otto", []any{"nginx"}, 8, 1, 1, "changed", 8)
	add(9*time.Minute, "service.restart", "web0107.example.com", "otto", []any{"nginx"}, 0, 1, 0)
	add(31*time.Minute, "pkg.list_upgrades", "web01*", "anna", nil, 99, 0, 1)
	add(2*time.Hour, "test.version", "*", "anna", nil, 1979, 0, 20)
	add(2*time.Hour+50*time.Minute, "state.apply", "web*11.example.com", "anna",
		[]any{value.NewMap("__kwarg__", true, "test", true)}, 20, 0, 0, "would_change", 20)
	add(14*time.Hour, "state.apply", "*", "root", nil, 1934, 45, 20, "changed", 219, "error", 5,
		"minions", 1999, "left_out", 20) // what addRun says of the night; the saved job apply, in a batch
	list[0].(*value.Map).Set("Saved", value.NewMap("job", "restart"))
	list[len(list)-1].(*value.Map).Set("Saved", value.NewMap("job", "apply", "schedule", "nightly"))
	return list, value.NewMap("jobs", rows, "next", "")
}

// docJob is a job of which one minion failed and one has not answered yet.
func docJob() *value.Map {
	state := func(n int, result bool, comment string, changes *value.Map) *value.Map {
		return value.NewMap("__run_num__", int64(n), "result", result, "changes", changes, "comment", comment, "duration", 12.5+float64(800*n),
			"start_time", "15:59:10.000000")
	}
	none := value.NewMap()
	diff := value.NewMap("diff", "--- \n+++ \n@@ -1,3 +1,3 @@\n server {\n-    listen 80;\n+    listen 443 ssl;\n }\n")
	good := value.NewMap(
		"pkg_|-nginx_|-nginx_|-installed", state(0, true, "All specified packages are already installed", none),
		"file_|-site_|-/etc/nginx/sites-enabled/shop_|-managed", state(1, true, "File /etc/nginx/sites-enabled/shop updated", diff),
		"service_|-nginx_|-nginx_|-running", state(2, true, "Service restarted", value.NewMap("nginx", true)),
	)
	bad := value.NewMap(
		"pkg_|-nginx_|-nginx_|-installed", state(0, true, "All specified packages are already installed", none),
		"file_|-site_|-/etc/nginx/sites-enabled/shop_|-managed", state(1, true, "File /etc/nginx/sites-enabled/shop updated", diff),
		"service_|-nginx_|-nginx_|-running", state(3, false, "Job for nginx.service failed because the control process exited with error code.", none),
	)
	minions, result := []any{}, value.NewMap()
	for i := range 10 {
		id := fmt.Sprintf("web%04d.example.com", 100+i)
		minions = append(minions, id)
		switch i {
		case 7:
			result.Set(id, value.NewMap("return", bad, "retcode", int64(2), "success", true))
		case 3:
		default:
			result.Set(id, value.NewMap("return", good, "retcode", int64(0), "success", true))
		}
	}
	return value.NewMap("jid", "20261124155910000000", "Function", "state.apply", "Arguments", []any{"nginx"}, "Target", "web010*",
		"Target-type", "glob", "User", "otto", "Minions", minions, "StartTime", "2026, Nov 24 15:59:10.000001", "Result", result)
}

// docBatch is the job of a saved job that goes on in a batch of five.
func docBatch() *value.Map {
	minions, result := []any{}, value.NewMap()
	for i := range 15 {
		id := fmt.Sprintf("web%04d.example.com", i)
		minions = append(minions, id)
		if i < 10 {
			result.Set(id, value.NewMap("return", true, "retcode", int64(0), "success", true))
		}
	}
	return value.NewMap("jid", "20261124155940000000", "Function", "service.restart", "Arguments", []any{"nginx"}, "Target", "web*",
		"Target-type", "glob", "User", "otto", "Minions", minions, "StartTime", "2026, Nov 24 15:59:40.000001", "Result", result,
		"Saved", value.NewMap("job", "restart"),
		"Batch", value.NewMap("minions", int64(2000), "size", int64(5), "absent", int64(20), "pending", int64(1965), "active", int64(5), "halted", "",
			"tgt", "web*", "tgt_type", "glob"))
}

// addDocBranch adds what the page needs that compares a branch.
func addDocBranch(m map[string]any) {
	const remote = "https://git.example.com/states.git"
	change := func(path, what, from, to string, secret bool) any {
		return value.NewMap("path", path, "change", what, "secret", secret, "from", from, "to", to)
	}
	commit := func(branch, id, state, words string) any {
		return value.NewMap("branch", branch, "commit", strings.Repeat(id, 10), "state", state, "description", words, "since", "2026-11-24T15:20:00Z")
	}
	m[pillarDiff] = value.NewMap("from", "what is served", "to", "tls", "code", int64(1), "minions", int64(2000), "compared", int64(2000), "differ", int64(2000), "without_grains", int64(0),
		"groups", []any{
			value.NewMap("count", int64(1334), "minions", []any{"web0000.example.com", "web0001.example.com", "web0003.example.com"},
				"top_added", []any{}, "top_removed", []any{}, "changes", []any{
					change("nginx:port", "changed", "80", "443", false),
					change("nginx:password", "changed", `"(hidden)"`, `"(hidden)"`, true),
				}),
			value.NewMap("count", int64(666), "minions", []any{"web0002.example.com", "web0005.example.com", "web0008.example.com"},
				"top_added", []any{"tls"}, "top_removed", []any{}, "changes", []any{
					change("nginx:port", "changed", "80", "443", false),
					change("tls:protocols", "added", "", "TLSv1.3", false),
				}),
		})
	m[gitBranches] = value.NewMap(remote, value.NewMap("branches", value.NewMap("main", "4f1c2a97be03d8815c6e", "tls", "9b2e9b2e9b2e"), "tags", value.NewMap()))
	m[gitReports] = []any{value.NewMap("remote", remote, "waiting", []any{}, "reported", []any{
		commit("tls", "9b2e", "success", "pillars: 2000 of 2000 differ (2 groups); states: same on 2000"),
		commit("ntp", "71cd", "failure", "pillars: 1 of 2000 differ, 1 with new errors; states: same on 2000"),
	})}
}

var secretField = regexp.MustCompile(`name="form" value="[0-9a-f]+"`)

// askDocPage asks for a page of the documentation.
func askDocPage(t *testing.T, c *Console, m *recorded, name, path string) Answer {
	t.Helper()
	switch name {
	case "login":
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://salt:8000"+c.base+path, nil)
		a := c.Serve(t.Context(), Request{HTTP: r, Path: path, Master: m})
		a.Body = secretField.ReplaceAllString(a.Body, `name="form" value="SECRET"`) // it is random
		return a
	case "diff":
		form := url.Values{"form": {formToken(m.login().Token)}, "ref": {"tls"}, "kind": {"pillars"}, "tgt": {"*"}, "type": {"glob"}}
		return ask(t, c, m, http.MethodPost, path, form)
	}
	return ask(t, c, m, http.MethodGet, path, nil)
}

// docNodes are three nodes, of which one is lost, and their last day.
func docNodes() (appliance, course *value.Map) {
	at := now().Add(-3 * time.Minute).Format(time.RFC3339)
	node := func(name, address string, minions any, state string) any {
		word := map[bool]string{true: "ok", false: "?"}[state == "ready"]
		return value.NewMap("name", name, "role", "voter", "state", state, "master", word, "proxy", word, "storage", word,
			"version", "1.2.3", "address", address, "minions", minions)
	}
	service := func(name string) any {
		return value.NewMap("name", name, "state", "running", "since", now().Add(-200*time.Hour).Format(time.RFC3339), "restarts", int64(0))
	}
	asRoot := func(program string) any {
		return value.NewMap("code", "SCA-502", "severity", "notice", "title", program+" runs as root", "subject", program,
			"next", "create the accounts that stand under \"users\" in appliance.yaml, give them their folders (docs/install.md), then, on one node after the other: sudo systemctl restart applianced", "since", now().Add(-200*time.Hour).Format(time.RFC3339))
	}
	appliance = value.NewMap("time", at, "health", "degraded", "cluster", "lab", "node", "n1", "address", "10.0.0.10", "holders", []any{"n1"},
		"nodes", []any{node("n1", "10.0.0.1", int64(991), "ready"), node("n2", "10.0.0.2", int64(989), "ready"), node("n3", "10.0.0.3", nil, "unreachable")},
		"services", []any{service("master"), service("lb"), service("api")},
		"storage", value.NewMap("kind", "volume", "total", int64(252<<30), "free", int64(181<<30)),
		"problems", []any{
			value.NewMap("code", "SCA-104", "severity", "warning", "title", "node n3 is unreachable", "subject", "n3", "cause",
				"dial tcp 10.0.0.3:4521: no route to host", "next", "applianced ping n3; if it is gone for good, and the other nodes say the same: applianced remove n3 (then it can join only as a new node)", "since",
				now().Add(-13*time.Minute).Format(time.RFC3339)),
			asRoot("salt-master"), asRoot("applianced lb"), asRoot("salt-api")})

	series := []any{}
	for k, name := range []string{"n1", "n2", "n3"} {
		points := []any{}
		for i := range 288 {
			before := now().Add(-time.Duration(288-i) * control.PointEvery)
			lost := before.After(now().Add(-14 * time.Minute))
			if name == "n3" && lost {
				continue
			}
			wave := math.Sin(float64(i)/40 + float64(k))
			minions := math.Round(660 + 8*wave)
			if lost {
				minions = float64(991 - 2*k)
			}
			points = append(points, value.NewMap("at", before.Format(time.RFC3339), "minions", minions, "returns", math.Round(30+20*wave*wave),
				"latency", math.Round(2+2*wave*wave+float64(k)), "memory", (180+10*wave+float64(20*k))*(1<<20)))
		}
		series = append(series, value.NewMap("node", name, "points", points))
	}
	return appliance, value.NewMap("nodes", series, "unasked", value.NewMap("n3", "it does not answer"))
}

// docFinger is a fingerprint of its own for each minion.
func docFinger(id string) string {
	sum := sha256.Sum256([]byte(id))
	return strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":")
}

// docAnswers are the answers of a master for the pictures in the documentation.
func docAnswers() map[string]any {
	f := newDocFleet()
	jobs, history := docJobs()
	appliance, course := docNodes()
	finger := docFinger("web0023.example.com")
	pending := []any{"web2000.example.com", "web2001.example.com", "web2002.example.com"}
	waiting := value.NewMap()
	all := append([]any{}, f.minions...)
	for i, id := range pending {
		waiting.Set(id, docFinger(id.(string)))
		all = append(all, value.NewMap("id", id, "key", "pending", "connected", false, "address", fmt.Sprintf("10.1.9.%d", i+1),
			"seen", float64(now().Add(-time.Duration(20+30*i)*time.Second).Unix())))
	}
	ids := []any{}
	for _, m := range f.minions {
		ids = append(ids, m.(*value.Map).Str("id"))
	}

	record := func(at, user, proof, from, action, object, result string, more ...any) any {
		m := value.NewMap("time", at, "node", "n1", "user", user, "proof", proof, "eauth", "pam", "from", from, "via", "salt-api",
			"action", action, "object", object, "result", result)
		for i := 0; i < len(more); i += 2 {
			m.Set(more[i], more[i+1])
		}
		return m
	}
	nights := []any{}
	for i := range 60 {
		nights = append(nights, time.Date(2026, 11, 25+i, 2, 0, 0, 0, time.UTC).Format(time.RFC3339))
	}

	m := theAnswers()
	m["presence.minions"] = value.NewMap("minions", all, "subscriptions", value.NewMap())
	m["fleet.last"] = value.NewMap("minions", f.runs, "next", "")
	m["fleet.trend"] = f.trend()
	m["cache.grains"] = f.grains
	m["jobs.list_jobs_filter"] = jobs
	m["fleet.jobs"] = history
	m["jobs.list_job"] = docJob()
	m["appliance.status"], m["appliance.course"] = appliance, course
	m["cluster.members"] = value.NewMap("id", "10.0.0.1", "state", "member", "version", uint64(7), "peers",
		value.NewMap("10.0.0.2", value.NewMap("connected", true, "alive", true, "version", uint64(7)),
			"10.0.0.3", value.NewMap("connected", false, "alive", false, "error", "no route to host")), "owner", "n1")
	m["key.list_all"] = wheel(value.NewMap("minions", ids, "minions_pre", pending, "minions_rejected", []any{}, "minions_denied", []any{}, "local", []any{}))
	m["key.finger"] = wheel(value.NewMap("minions_pre", waiting))
	m["files.list"] = value.NewMap("envs", []any{"base"}, "saltenv", "base", "prefix", "", "dirs", []any{"nginx", "packages", "sshd"}, "files", []any{"top.sls"}, "of", int64(4))
	m["schedule.list"] = value.NewMap("enabled", true, "owner", true, "entries", value.NewMap("nightly",
		value.NewMap("function", "saved.run", "trigger", "when", "enabled", true, "running", int64(0), "next", nights,
			"last_run", "2026-11-24T02:00:00Z", "last_jid", now().Add(-14*time.Hour).Format("20060102150405")+"000000")))
	m["saved.schedules"] = value.NewMap("nightly", value.NewMap("saved", "apply", "when", "02:00", "enabled", true, "revision", int64(2),
		"description", "All states, each night"))
	m["saved.jobs"] = value.NewMap("restart", value.NewMap("target", "web*", "target_type", "glob", "function", "service.restart",
		"args", []any{"{service}"}, "fields", []any{value.NewMap("name", "service", "kind", "choice", "choices", []any{"nginx", "php-fpm"})},
		"batch", "5", "may_run", value.NewMap("pam", []any{"otto", "operators%"}),
		"revision", int64(4), "changed", "2026-11-23T09:20:00Z", "by", "anna (pam)", "runs", true, "description", "One service of the web servers"),
		"apply", value.NewMap("target", "*", "target_type", "glob", "function", "state.apply", "test_first", true, "stop_above", int64(5),
			"batch", "10%", "revision", int64(1), "changed", "2026-11-20T15:00:00Z", "by", "anna (pam)", "runs", true, "description", "All states"))
	m["saved.targets"] = value.NewMap()
	m["git.status"] = value.NewMap("https://git.example.com/states.git", value.NewMap("state", "ok",
		"refs", value.NewMap("main", "4f1c2a97be03d8815c6e"), "changed", "2026-11-22T16:00:00Z", "fetched", "2026-11-24T15:59:00Z",
		"other_masters", value.NewMap("n2", value.NewMap("same", true))))
	token := func(name, user, from, start, until string) any {
		return value.NewMap("name", name, "user", user, "eauth", "pam", "from", from, "node", "n1", "start", start, "until", until)
	}
	m["token.list"] = wheel(value.NewMap("more", int64(0), "tokens", []any{
		token("6f0a1c94d2be7753", "otto", "10.0.7.31", "2026-11-24T15:49:00Z", "2026-11-25T03:49:00Z"),
		token(control.TokenName(strings.Repeat("ab", 32)), "alice", "10.0.7.12", "2026-11-24T15:40:00Z", "2026-11-25T03:40:00Z"),
		token("b81e55d09c3fa264", "anna", "10.0.7.20", "2026-11-24T12:58:00Z", "2026-11-25T00:58:00Z"),
	}))
	m["audit.all"] = value.NewMap("unasked", value.NewMap("n3", "it does not answer"), "more", false, "damaged", int64(0), "records", []any{
		value.NewMap("time", "2026-11-24T02:00:00Z", "node", "n1", "program", "salt-master", "user", "root", "proof", "setting", "from", "local",
			"action", "saved.run", "object", "apply", "function", "state.apply", "result", "started", "minions", int64(1979),
			"jid", "20261124020000000000", "detail", "on *"),
		record("2026-11-24T12:58:00Z", "anna", "password", "10.0.7.20", "login", "", "ok", "function", "mk_token"),
		record("2026-11-24T13:10:00Z", "anna", "token", "10.0.7.20", "job.publish", "web*11.example.com", "started", "function", "state.apply",
			"minions", int64(20), "jid", "20261124131000000000"),
		record("2026-11-24T14:00:00Z", "anna", "token", "10.0.7.20", "job.publish", "*", "started", "function", "test.version",
			"minions", int64(1999), "jid", "20261124140000000000"),
		record("2026-11-24T14:55:02Z", "eve", "none", "10.0.7.66", "login", "", "refused", "function", "mk_token"),
		record("2026-11-24T15:02:11Z", "anna", "token", "10.0.7.20", "key.accept", "web1999.example.com", "ok"),
		record("2026-11-24T15:29:00Z", "anna", "token", "10.0.7.20", "job.publish", "web01*", "started", "function", "pkg.list_upgrades",
			"minions", int64(100), "jid", "20261124152900000000"),
		record("2026-11-24T15:40:00Z", "alice", "password", "10.0.7.12", "login", "", "ok", "function", "mk_token"),
		record("2026-11-24T15:49:00Z", "otto", "password", "10.0.7.31", "login", "", "ok", "function", "mk_token"),
		record("2026-11-24T15:51:00Z", "otto", "token", "10.0.7.31", "job.publish", "web0107.example.com", "started", "function", "service.restart",
			"minions", int64(1), "jid", "20261124155100000000"),
		record("2026-11-24T15:52:30Z", "otto", "token", "10.0.7.31", "job.publish", "*", "refused", "function", "cmd.run"),
		record("2026-11-24T15:59:10Z", "otto", "token", "10.0.7.31", "job.publish", "web010*", "started", "function", "state.apply",
			"minions", int64(10), "jid", "20261124155910000000"),
		record("2026-11-24T15:59:40Z", "otto", "token", "10.0.7.31", "saved.run", "restart", "started", "function", "service.restart",
			"minions", int64(1980), "jid", "20261124155940000000", "detail", "on web*"),
	})
	addDocBranch(m)
	runs := []any{}
	for day := 22; day > 17; day-- {
		runs = append(runs, value.NewMap("minion", "web0023.example.com", "time", fmt.Sprintf("2026-11-%dT02:00:00Z", day),
			"jid", fmt.Sprintf("202611%d020000000000", day), "user", "root", "function", "state.apply", "result", "ok"))
	}
	m["fleet.runs"] = value.NewMap("next", "more", "runs", runs)
	m["fleet.explain"] = value.NewMap("minion", "web0023.example.com", "node", "n1", "answers", false,
		"causes", []any{
			value.NewMap("code", "node not asked", "text", "it may be connected to a node that did not answer: n3",
				"next", "applianced nodes; then ask again, or on that node"),
			value.NewMap("code", "not connected", "text", "it is not connected to the nodes that were asked, and was last heard 43 h ago",
				"next", "look at the machine: is it up, does salt-minion run, do ports 4505 and 4506 of this cluster answer there?")},
		"unanswered", []any{value.NewMap("jid", "20261124140000000000", "function", "test.version")},
		"key", value.NewMap("state", "accepted", "fingerprint", finger, "by", "anna (pam)", "since", "2026-10-02T09:12:00Z"),
		"connection", value.NewMap("connected", false, "node", "", "unasked", value.NewMap("n3", "it does not answer")),
		"nodegroups", []any{"web"},
		"states", value.NewMap("matches", []any{value.NewMap("top", "base", "env", "base", "target", "web*", "type", "glob",
			"sls", []any{"nginx", "packages", "sshd"})}, "others", []any{}))
	return m
}

// addDocRuns adds the last runs of a minion whose web server did not start last night.
func addDocRuns(m map[string]any) {
	const id = "web0007.example.com"
	run := func(at, jid, user, function string) *value.Map {
		return value.NewMap("minion", id, "time", at, "jid", jid, "user", user, "function", function, "result", "ok")
	}
	runs := []any{
		run("2026-11-24T15:59:42Z", "20261124155940000000", "otto", "service.restart"),
		run("2026-11-24T14:00:01Z", "20261124140000000000", "anna", "test.version"),
	}
	for day := 24; day > 20; day-- {
		runs = append(runs, value.NewMap("minion", id, "time", fmt.Sprintf("2026-11-%dT02:00:00Z", day),
			"jid", fmt.Sprintf("202611%d020000000000", day), "user", "root", "function", "state.apply",
			"result", map[bool]string{true: "failed", false: "ok"}[day == 24]))
	}
	m["fleet.runs"] = value.NewMap("next", "more", "runs", runs)
	m["fleet.last"].(*value.Map).Map("minions").Map(id).Set("failed_states", []any{value.NewMap("id", "nginx", "sls", "nginx",
		"function", "service.running", "comment", "Job for nginx.service failed because the control process exited with error code.")})
}

// TestDocPages holds the pages whose pictures are in the documentation against those in testdata/docs, so
// that these are renewed with the templates.
func TestDocPages(t *testing.T) {
	answers := docAnswers()
	for name, path := range map[string]string{
		"overview":  "/",
		"fleet":     "/fleet",
		"minions":   "/minions?q=web000",
		"jobs":      "/jobs",
		"job":       "/job?jid=20261124155910000000",
		"keys":      "/keys",
		"run":       "/run?look=1&tgt=web010*&fun=state.apply&sls=nginx&batch=25%25&failhard=1",
		"schedule":  "/schedule",
		"audit":     "/audit?since=24h",
		"confirm":   "/keys/confirm?do=accept&state=minions_pre&id=web2000.example.com&id=web2001.example.com",
		"saved":     "/saved",
		"files":     "/files",
		"tokens":    "/tokens",
		"batch":     "/job?jid=20261124155940000000",
		"stop":      "/job/stop?do=kill&jid=20261124155940000000",
		"savedjob":  "/saved/job?name=restart",
		"savedrun":  "/saved/run?name=restart",
		"entry":     "/schedule/edit?name=nightly",
		"minion":    "/minion?id=web0007.example.com",
		"empty":     "/schedule",
		"events":    "/events",
		"login":     "/login",
		"diff":      "/diff",
		"codes":     "/codes",
		"explained": "/minion?id=web0023.example.com&explain=1",
	} {
		t.Run(name, func(t *testing.T) {
			c := newConsole(t, "/api")
			c.cfg.Cluster = name == "overview" || name == "fleet" || name == "schedule" || name == "confirm"
			c.cfg.Nodes = true
			c.cfg.Name = "lab"
			c.cfg.Systems = []string{"pam"}
			status := &control.Status{ID: "n1", Started: now().Add(-200 * time.Hour), Written: now()}
			answers := answers
			switch name {
			case "minion":
				answers = docAnswers()
				addDocRuns(answers)
			case "batch", "stop":
				answers = docAnswers()
				answers["jobs.list_job"] = docBatch()
			case "empty":
				answers = docAnswers()
				answers["schedule.list"] = value.NewMap("enabled", true, "owner", true, "entries", value.NewMap())
				answers["saved.schedules"] = value.NewMap()
			case "overview": // the others are connected to n2
				answers = docAnswers()
				for i, m := range answers["presence.minions"].(*value.Map).List("minions") {
					if i%2 == 0 || i >= 1982 {
						m.(*value.Map).Set("connected", false)
					}
				}
			}
			a := askDocPage(t, c, &recorded{answers: answers, status: status}, name, path)
			if a.Code != http.StatusOK {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
			body := marks.ReplaceAllString(a.Body, "?v=MARK")
			file := filepath.Join("testdata", "docs", name+".html")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != body {
				t.Errorf("it is not as in %s: go test -run TestDocPages -update writes it; then make test-browser RUN=TestPictures UPDATE=1", file)
			}
		})
	}
}
