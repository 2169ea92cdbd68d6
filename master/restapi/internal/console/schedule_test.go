package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// theSchedule is a schedule with an entry of each kind.
func theSchedule() any {
	run := func(at ...string) []any { return value.List(at) }
	entry := func(fun, trigger string, next []any, more ...any) *value.Map {
		m := value.NewMap("function", fun, "trigger", trigger, "enabled", true, "running", int64(0), "next", next)
		for i := 0; i < len(more); i += 2 {
			m.Set(more[i], more[i+1])
		}
		return m
	}

	var frequent, daily, four []string
	for i := range 60 {
		frequent = append(frequent, now().Add(time.Duration(i)*10*time.Minute).Format(time.RFC3339))
		daily = append(daily, time.Date(2026, 11, 25+i, 2, 0, 0, 0, time.UTC).Format(time.RFC3339))
	}

	for d := range 15 {
		for h := range 4 {
			four = append(four, time.Date(2026, 11, 25+d, 8+2*h, 30, 0, 0, time.UTC).Format(time.RFC3339))
		}
	}

	return value.NewMap("enabled", true, "owner", false, "entries", value.NewMap(
		"nightly highstate", entry("salt.execute", "cron", run(daily...), "last_run", "2026-11-24T02:00:00Z", "last_jid", "20261124155900000001"),
		"sync", entry("fileserver.update", "every 10m0s", run(frequent...), "running", int64(1),
			"last_run", "2026-11-24T15:50:00Z", "last_jid", says),
		"four", entry("state.orchestrate", "cron", run(four...)),
		"report "+says, entry("state.orchestrate", "when", run("2026-11-27T17:00:00Z", "2026-11-30T07:00:00Z", says),
			"skipped", "in_skip_range", "last_run", "2026-11-23T17:00:00Z"),
		"old", entry("test.arg", "once", run(), "enabled", false),
		"bad", value.NewMap("does_not_run", "cron: there is no such month: "+says),
	))
}

// days returns the calendar as text: the lines of each day by its title.
func days(weeks [][]calendarDay) map[string]string {
	out := map[string]string{}
	for _, week := range weeks {
		for _, d := range week {
			var lines []string
			for _, l := range d.Lines {
				lines = append(lines, strings.TrimSpace(l.At+" "+l.Name+" "+l.Note))
			}
			out[d.Weekday+" "+d.Date] = strings.Join(lines, "; ")
		}
	}
	return out
}

// TestCalendar: the calendar has each run on its day by the master's clock, in weeks that begin
// with today.
func TestCalendar(t *testing.T) {
	c := newConsole(t, "")
	all := c.entriesOf(theSchedule().(*value.Map).Map("entries"), false)
	weeks := calendarOf(all, now())
	got := days(weeks)
	if len(got) != calendarDays || len(weeks) != 2 || !weeks[0][0].Today {
		t.Fatalf("%d days in %d weeks: %v", len(got), len(weeks), weeks[0])
	}

	for day, want := range map[string]string{
		"Tue 24 Nov": "02:00 nightly highstate has run; 16:00 sync 48 times until 23:50",
		"Mon 7 Dec":  "02:00 nightly highstate; 08:30 four 4 times until 14:30; sync every 10 minutes, all day",
	} {
		if got[day] != want {
			t.Errorf("%s: %q, not %q", day, got[day], want)
		}
	}

	if !strings.Contains(got["Fri 27 Nov"], "17:00 report") || strings.Contains(got["Sat 28 Nov"], "report") {
		t.Errorf("%v", got)
	}

	// East of Greenwich the same moments are on other days.
	east := time.FixedZone("", 10*3600)
	moved := []scheduleEntry{{Name: "a", runs: []time.Time{now().In(east)}}}
	if got := days(calendarOf(moved, now().In(east))); got["Wed 25 Nov"] != "02:00 a" {
		t.Errorf("%v", got)
	}
}

// TestCalendarBounds: thousands of entries and clocks that are wrong stay within the page.
func TestCalendarBounds(t *testing.T) {
	entries := value.NewMap()
	for i := range 3000 {
		next := []any{}
		for k := range runsOfEntry {
			next = append(next, now().Add(time.Duration(k)*time.Hour).Format(time.RFC3339))
		}
		entries.Set(fmt.Sprintf("e%05d", i), value.NewMap("function", "test.arg", "trigger", "every 1h0m0s", "next",
			next))
	}
	entries.Set("past", value.NewMap("next", []any{"1999-01-01T00:00:00Z", "2001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"}))

	m := &recorded{answers: theAnswers()}
	m.answers["schedule.list"] = value.NewMap("enabled", true, "owner", true, "entries", entries)
	m.answers["saved.schedules"] = value.NewMap()
	begin := time.Now()
	a := ask(t, newConsole(t, ""), m, http.MethodGet, "/schedule?page=3", nil)
	t.Logf("%d bytes, %s", len(a.Body), time.Since(begin))
	if a.Code != http.StatusOK || len(a.Body) > 200_000 || !strings.Contains(a.Body, "2801 more entries are not drawn") {
		t.Errorf("%d, %d bytes", a.Code, len(a.Body))
	}
}

// TestScheduleOwner: the page names the node that runs the schedule.
func TestScheduleOwner(t *testing.T) {
	c := newConsole(t, "")
	m := &recorded{answers: theAnswers()}
	m.answers["schedule.list"] = theSchedule()
	m.answers["cluster.members"] = value.NewMap("owner", "n2"+says)
	if a := ask(t, c, m, http.MethodGet, "/schedule", nil); !strings.Contains(a.Body, "Run by <strong>n2&lt;b") {
		t.Errorf("%s", a.Body)
	}

	m.may = func(_, fun string) bool { return fun == "schedule.list" }
	if a := ask(t, c, m, http.MethodGet, "/schedule", nil); !strings.Contains(a.Body,
		"Run by <strong>another node of the cluster</strong>") {
		t.Errorf("%s", a.Body)
	}

	m.answers = map[string]any{}
	if a := ask(t, c, m, http.MethodGet, "/schedule", nil); a.Code != http.StatusUnauthorized {
		t.Errorf("without rights: %d", a.Code)
	}
}

// TestTrigger: how often an entry runs is said in words.
func TestTrigger(t *testing.T) {
	for trigger, want := range map[string]string{
		"every 10m0s":   "every 10 minutes",
		"every 1m0s":    "every minute",
		"every 1h0m0s":  "every hour",
		"every 1h30m0s": "every 90 minutes",
		"every 48h0m0s": "every 2 days",
		"every 61s":     "every 61 seconds",
		"every thing":   "every thing",
		"cron":          "by cron",
		"once":          "once",
	} {
		if got := triggerWord(trigger); got != want {
			t.Errorf("%q: %q, not %q", trigger, got, want)
		}
	}
}
