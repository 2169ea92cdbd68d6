package restapi

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// someEvents returns the events of a bus while jobs run, keys are changed, and minions connect and
// disconnect.
func someEvents() []string {
	job := func(jid, fun string, ids string) string {
		return fmt.Sprintf(`{"tag": "salt/job/%s/new", "data": {"jid": "%[1]s", "tgt_type": "glob", "tgt": "*", "user": "root", "fun": "%s", "arg": [], "minions": [%s], "missing": [], "_stamp": "2026-11-25T22:45:04.345583"}}`,
			jid, fun, ids)
	}

	ret := func(jid, id, fun, ret string, ok bool) string {
		return fmt.Sprintf(`{"tag": "salt/job/%s/ret/%s", "data": {"cmd": "_return", "id": "%[2]s", "success": %t, "return": %s, "retcode": 0, "jid": "%[1]s", "fun": "%[5]s", "fun_args": [], "_stamp": "2026-11-25T22:45:05.1"}}`,
			jid, id, ok, ret, fun)
	}

	key := func(act, id string) string {
		return fmt.Sprintf(`{"tag": "salt/key", "data": {"_stamp": "2026-11-25T22:45:04.3", "act": "%s", "id": "%s", "result": true}}`,
			act, id)
	}

	return []string{
		key("accept", "web1"), key("pend", "web9"), job("20261125000000000001", "test.ping", `"web1", "wéb2"`),
		ret("20261125000000000001", "web1", "test.ping", `true`, true), `{"tag": "minion/refresh/web1", "data": {"Minion data cache refresh": "web1"}}`, `{"tag": "x", "data": {}}`,
		ret("20261125000000000001", "wéb2", "test.ping", `{"a": [1, 2.5, null, "\u00e9<"]}`, false), ret("20261125000000000001", "wéb2", "test.ping", `true`, true),
		ret("20261125000000000002", "web1", "state.apply", `{}`, true), job("20261125000000000003",
			"grains.items", `"web1", "wéb2"`),
		ret("20261125000000000003", "web1", "grains.items", `{"id": "web1", "os": "Debian"}`, true), ret("20261125000000000003", "wéb2", "grains.items", `{"id": "wéb2"}`, true),
		`{"tag": "salt/presence/present", "data": {"present": ["web1", "wéb2"], "_stamp": "x"}}`, `{"tag": "salt/presence/present", "data": {"present": ["web1", "new1"]}}`,
		key("delete", "web1"), key("accept", "web3"),
	}
}

// differ passes events to Salt's own formatter. Its answers are lines, one for each message.
const differ = `
import json, sys
import salt.netapi
from salt.netapi.rest_cherrypy.event_processor import SaltInfo
class Handler:
    def send(self, text, binary): print("send", text)
class Client:
    def __init__(self, opts): pass
    def run(self, low): print("grains", low["tgt"])
salt.netapi.NetapiClient = Client
info = SaltInfo(Handler())
for line in sys.stdin:
    info.process(json.loads(line), "token", {})
    print("next")
`

// TestFormattedAsSalts: /ws?format_events sends the same messages as Salt, event by event.
func TestFormattedAsSalts(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}

	script := filepath.Join(t.TempDir(), "differ.py")
	if err := os.WriteFile(script, []byte(differ), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), python, script)
	cmd.Stdin = strings.NewReader(strings.Join(someEvents(), "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("Salt's formatter: %v %s", err, out)
	}

	var lines []string
	f := newFormatted(time.Now, func(ids []string) { lines = append(lines, "grains "+strings.Join(ids, ",")) })
	for _, e := range someEvents() {
		for _, m := range f.takeEvent(e) {
			lines = append(lines, "send "+m)
		}
		lines = append(lines, "next")
	}

	want := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(want) != len(lines) {
		t.Fatalf("Salt's has %d lines, ours %d:\n%s\n\n%s", len(want), len(lines), strings.Join(want, "\n"),
			strings.Join(lines, "\n"))
	}

	for i := range want {
		a, okA := strings.CutPrefix(want[i], "send ")
		b, okB := strings.CutPrefix(lines[i], "send ")
		var x, y any
		if okA && okB && json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil &&
			reflect.DeepEqual(x, y) {
			continue
		}

		if want[i] != lines[i] {
			t.Errorf("line %d:\nSalt's %s\nours   %s", i, want[i], lines[i])
		}
	}
}

// TestFormattedBounds: whatever events the bus carries, the memory for one reader is bounded, and
// an event that lacks a field does not end the connection.
func TestFormattedBounds(t *testing.T) {
	now, asked := time.Unix(1e9, 0), 0
	f := newFormatted(func() time.Time { return now }, func([]string) { asked++ })
	for i := range 3 * maxFormattedJobs {
		f.takeEvent(fmt.Sprintf(`{"tag": "salt/job/%d/ret/web1", "data": {"return": "%s", "retcode": 0, "success": true}}`,
			i, strings.Repeat("x", i*10)))
	}

	if n := f.jobs.Len(); n > maxFormattedJobs || n < 30 || f.bytes > maxFormattedBytes || len(f.sizes) != n {
		t.Errorf("%d jobs, %d bytes", n, f.bytes)
	}

	for i := range 5 {
		f.takeEvent(fmt.Sprintf(`{"tag": "salt/presence/present", "data": {"present": ["a", "b%d"]}}`, i))
		now = now.Add(grainsAgain / 2)
	}

	if asked != 3 {
		t.Errorf("grains were asked for %d times", asked)
	}

	for _, bad := range []string{``, `{`, `[]`, `{"tag": 1}`, `{"tag": "salt/job"}`,
		`{"tag": "salt/job/1/new", "data": {}}`,
		`{"tag": "salt/job/1/new", "data": {"minions": 7, "jid": {}, "_stamp": [], "fun": 1, "tgt": null, "tgt_type": 2}}`,
		`{"tag": "salt/job/1/ret/a", "data": null}`, `{"tag": "salt/job/1/ret", "data": {"return": 1}}`, `{"tag": "salt/key", "data": []}`, `{"tag": "salt/presence/change", "data": {"new": [], "lost": []}}`} {
		for _, m := range f.takeEvent(bad) {
			if !json.Valid([]byte(m)) {
				t.Errorf("%s: %s", bad, m)
			}
		}
	}
}
