package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"saltern/master/value"
)

// outcome is a kind of result: its name in answers of the master, the word and the class with which pages
// show it.
type outcome struct{ Name, Word, Class string }

// outcomes returns the results of runs of states, and what a minion without such a run did.
func outcomes() []outcome {
	return []outcome{
		{"ok", "ok", "ok"},
		{"changed", "changed", "changed"},
		{"would_change", "would change", "differs"},
		{"failed", "failed", "failed"},
		{"error", "could not run states", "error"},
		{"answered", "answered, ran no states", "answered"},
		{"absent", "did not answer", "absent"},
		{"never", "no states yet", "never"},
	}
}

// outcomeOf returns the outcome with a name. For a name that this version does not know, word and name are
// the same.
func outcomeOf(name string) outcome {
	for _, o := range outcomes() {
		if o.Name == name {
			return o
		}
	}
	return outcome{briefName(name), briefName(name), "absent"}
}

// Bounds and sizes of the page Fleet.
const (
	maxFleetDrift = 25
	barWide       = 1000
	trendDays     = 31 // days in the plot; those before the first that is known stay empty
	trendStep     = 20 // width of a day
	trendHigh     = 120
)

type fleetPage struct {
	Absence  string // why there is nothing to show; "" if there is
	Minions  int
	Never    int // minions that have run no states
	NotRun   int // minions that could not run their states
	Bar      []barPart
	Drifted  int
	Silent   int // minions that answered nothing today
	Away     int // minions that are not connected; -1: nobody knows
	Waiting  int // keys that wait
	Trend    *trend
	Worst    []spreadRow
	Slowest  []spreadRow
	Drift    []driftRow
	More     bool // there is more drift
	MayNames bool // the user may see the page Minions
	Stream   string
}

// barPart is a part of a bar, and its line in the legend.
type barPart struct {
	outcome
	N       int
	At, Run int // place and width in the bar
	URL     string
}

// trend is a plot of the last days: a column a day.
type trend struct {
	Wide, High int
	Columns    []trendColumn
	Middle     int    // height of the line at half of Most
	Most       int    // minions at the top of the plot
	Half       string // half of Most; "" if that is no whole number
	Weeks      []week
	Words      string
	Outcomes   []outcome
}

// week is the date of a column below the plot.
type week struct{ Word string }

type trendColumn struct {
	Day, Words string
	X          int
	Parts      []columnPart
	Counts     []int // in the order of trend.Outcomes
}

type columnPart struct {
	Class   string
	Y, High string
}

type spreadRow struct {
	ID, Function string
	Minions      int
	Minion       string
	Comment      string
	Duration     string
	URL          string
}

type driftRow struct {
	Minion, ID, Function string
	When                 moment
	Lines                []diffLine
	Cause                string // "" for the usual one, which the page tells once: something else changed the minion
	JID                  string
	Corrected            bool
}

func showFleet(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d := fleetPage{MayNames: v.rights().Minions, Away: -1}
	got, err := v.runCommand(ctx, "runner", "fleet.trend")
	if err != nil {
		return Answer{}, err
	}

	m, ok := got.(*value.Map)
	if !ok {
		d.Absence = briefName(value.StrMax(got, maxName))
		return c.render(v, "fleet", http.StatusOK, page{Title: "Fleet", Data: d})
	}

	d.fill(c, m)
	if d.MayNames {
		all, err := minionsOf(ctx, v)
		if err != nil {
			return Answer{}, err
		}
		keys, present := countKeys(all)
		d.Away, d.Waiting = present.Away, keys.Pending
		if c.cfg.Cluster {
			d.Away = -1 // they may be connected to another master
		}
	}

	d.Stream = c.newJobs()
	return c.render(v, "fleet", http.StatusOK, page{Title: "Fleet", Data: d})
}

// newJobs returns the URL of the stream that tells of new jobs. A page that follows it reloads itself.
func (c *Console) newJobs() string {
	return c.base + "/stream?" + url.Values{"tag": {"salt/job/*/new"}}.Encode()
}

// fill reads the answer of fleet.trend.
func (d *fleetPage) fill(c *Console, m *value.Map) {
	d.Minions = count(m, "minions")
	d.Drifted = count(m, "drifted")
	last := m.Map("last_run")
	d.Never = count(last, "never")
	d.NotRun = count(last, "error")
	for _, o := range outcomes() {
		if n := count(last, o.Name); n > 0 {
			d.Bar = append(d.Bar, barPart{
				outcome: o,
				N:       n,
				URL:     c.base + "/minions?" + url.Values{"result": {o.Name}}.Encode(),
			})
		}
	}
	placeBar(d.Bar)

	days := m.List("days")
	if d.Minions > 0 && len(days) > 0 {
		d.Trend = trendOf(days)
		today, _ := days[len(days)-1].(*value.Map)
		d.Silent = count(today, "absent")
	}

	d.Worst = c.spreadsOf(m.List("worst_states"))
	d.Slowest = c.spreadsOf(m.List("slowest_states"))
	drift := m.List("drift")
	d.More = len(drift) > maxFleetDrift
	for _, e := range drift[:min(len(drift), maxFleetDrift)] {
		x, _ := e.(*value.Map)
		d.Drift = append(d.Drift, c.driftOf(x))
	}
}

// count returns a number in an answer of the master, or 0.
func count(m *value.Map, name string) int {
	n, _ := m.Int(name)
	return int(max(0, n))
}

// placeBar places the parts of a bar. Each has a width that can be seen.
func placeBar(parts []barPart) {
	const least = 12
	all := 0
	for i := range parts {
		all += parts[i].N
	}
	if all == 0 {
		return
	}

	wide := 0
	for i := range parts {
		parts[i].Run = max(least, barWide*parts[i].N/all)
		wide += parts[i].Run
	}
	at := 0
	for i := range parts {
		parts[i].At = at * barWide / wide
		at += parts[i].Run
		parts[i].Run = at*barWide/wide - parts[i].At
	}
}

func (c *Console) spreadsOf(list []any) (out []spreadRow) {
	for _, e := range list {
		m, _ := e.(*value.Map)
		id := m.Str("id")
		row := spreadRow{
			ID:       briefName(id),
			Function: briefName(m.Str("function")),
			Minions:  count(m, "minions"),
			Minion:   m.Str("minion"),
			Comment:  briefName(m.Str("comment")),
			URL:      c.base + "/minions?" + url.Values{"state": {id}}.Encode(),
		}
		if s, ok := number(m.Value("seconds")); ok {
			row.Duration = durationWord(s)
		}
		out = append(out, row)
	}
	return out
}

// durationWord returns a duration, given in seconds, with about three digits.
func durationWord(s float64) string {
	switch {
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1000)
	case s < 100:
		return fmt.Sprintf("%.1f s", s)
	}
	return spanWord(time.Duration(min(s, 1e9)) * time.Second)
}

func (c *Console) driftOf(m *value.Map) driftRow {
	row := driftRow{
		Minion:    m.Str("minion"),
		ID:        briefName(m.Str("id")),
		Function:  briefName(m.Str("function")),
		When:      c.momentOf(m.Str("time")),
		JID:       m.Str("jid"),
		Corrected: m.Value("corrected") == true,
	}
	if m.Str("cause") == "recurring" {
		row.Cause = "it changes with each run"
	}
	if text := cutText(m.Str("changes"), maxName*2); text != "" {
		row.Lines = diffLines(text)
	}
	return row
}

// trendOf returns the plot of the days in the answer of fleet.trend.
func trendOf(days []any) *trend {
	days = days[max(0, len(days)-trendDays):]
	t := &trend{Wide: trendDays * trendStep, High: trendHigh, Middle: trendHigh / 2, Outcomes: outcomes()[:7]}
	for i, e := range days {
		m, _ := e.(*value.Map)
		column := trendColumn{Day: briefName(m.Str("day")), X: (trendDays-len(days)+i)*trendStep + 2}
		all := 0
		for _, o := range t.Outcomes {
			n := count(m, o.Name)
			column.Counts = append(column.Counts, n)
			all += n
		}
		t.Most = max(t.Most, all)
		t.Columns = append(t.Columns, column)
	}

	for i := range t.Columns {
		t.Columns[i].draw(t)
	}
	first, last := &t.Columns[0], &t.Columns[len(t.Columns)-1]
	if t.Most%2 == 0 {
		t.Half = strconv.Itoa(t.Most / 2)
	}
	if at, err := time.Parse(time.DateOnly, last.Day); err == nil {
		for before := (trendDays - 1) / 7 * 7; before >= 0; before -= 7 {
			t.Weeks = append(t.Weeks, week{at.AddDate(0, 0, -before).Format("2 Jan")})
		}
	}
	t.Words = fmt.Sprintf("Columns from %s to %s. On the last day: %s.", first.Day, last.Day, last.Words)
	return t
}

// draw stacks the parts of a column from the ground: first what is well.
func (column *trendColumn) draw(t *trend) {
	ground := float64(trendHigh)
	var words []string
	for k, n := range column.Counts {
		if n == 0 {
			continue
		}
		high := float64(n) / float64(max(1, t.Most)) * trendHigh
		ground -= high
		column.Parts = append(column.Parts, columnPart{
			Class: t.Outcomes[k].Class,
			Y:     fmt.Sprintf("%.1f", ground),
			High:  fmt.Sprintf("%.1f", high),
		})
		words = append(words, fmt.Sprintf("%d %s", n, t.Outcomes[k].Word))
	}
	column.Words = strings.Join(words, ", ")
}
