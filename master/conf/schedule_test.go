package conf

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestScheduleProblemsHaveLines (F1, M4): the start and --check name the parts of the schedule that
// the master ignores, with file and line, in whatever option they are.
func TestScheduleProblemsHaveLines(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		runs  int      // entries
		notes []string // file:line text
	}{
		{"right", map[string]string{"master": "schedule:\n  a: {function: test.sleep, cron: '0 3 * * *'}\n"}, 1, nil},
		{"unknown key",
			map[string]string{"master": "schedule:\n  a:\n    function: test.sleep\n    seconds: 3\n    untill: '2020-01-01'\n"},
			0, []string{"master:5 entry a does not run: untill: an entry has no such key"}},
		{"bad value",
			map[string]string{"master": "id: m\nschedule:\n  a: {function: test.sleep, hours: 1}\n  b:\n    function: test.sleep\n    cron: '* *'\n"},
			1, []string{"master:6 entry b does not run: cron: \"* *\": 2 fields"}},
		{"once has passed", map[string]string{"master": "schedule:\n  a:\n    function: test.sleep\n    once: '2020-01-01T00:00:00'\n"},
			1, []string{"master:4 entry a: once: this time has passed"}},
		{"no time", map[string]string{"master": "schedule:\n  a: {function: test.sleep}\n"},
			0, []string{"master:2 entry a does not run: it has no time"}},
		{"no entry", map[string]string{"master": "schedule:\n  a: 5\n  b: {function: test.sleep, hours: 1}\n"},
			1, []string{"master:2 entry a does not run: an entry is a map"}},
		{"whole", map[string]string{"master": "schedule:\n  a: {function: test.sleep, hours: 1}\n  enabled: off-ish\n"},
			0, []string{"master:3 the schedule does not run: enabled: 'off-ish' is neither"}},
		{"no effect",
			map[string]string{"master": "schedule:\n  a:\n    function: test.sleep\n    hours: 1\n    until: '2030-01-01'\n    after: '2020-01-01'\n"},
			1, []string{"master:5 entry a: until: it has no effect beside after"}},
		{"master.d",
			map[string]string{
				"master":          "schedule:\n  a: {function: test.sleep, hours: 1}\n",
				"master.d/x.conf": "# x\nschedule:\n  b: {function: test.sleep, when: 17}\n",
			},
			0, []string{"x.conf:2 this schedule replaces",
				"x.conf:3 entry b does not run: when: YAML makes the number 17"}},
		{"persisted",
			map[string]string{
				"master":                  "id: m\n",
				"master.d/_schedule.conf": "schedule:\n  b: {function: test.sleep, hours: 1, jid_include: true, maxrunning: 2, enabled: true, name: b}\n",
			},
			1, nil},
		{"pillar",
			map[string]string{"master": "pillar:\n  whens: {tea: '17:00'}\n  schedule:\n    p: {function: test.sleep, when: tea}\n"},
			1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := loader().Load(write(t, c.files))
			if err != nil {
				t.Fatal(err)
			}

			var got []string
			for _, n := range m.Notes {
				if n.Option == "schedule" && n.Level >= slog.LevelWarn {
					got = append(got,
						fmt.Sprintf("%s:%d %s", n.Path[strings.LastIndex(n.Path, "/")+1:], n.Line, n.Text))
				}
			}

			if len(m.Plan.Entries) != c.runs || len(got) != len(c.notes) {
				t.Fatalf("%d entries, notes %q", len(m.Plan.Entries), got)
			}

			for i, want := range c.notes {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("%q, not %q", got[i], want)
				}
			}
		})
	}
}
