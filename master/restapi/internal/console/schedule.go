package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
)

const (
	calendarDays = 14
	// runsOfEntry is how many next runs of each entry the page asks for. The calendar says of an entry
	// with more runs within its days that it goes on.
	runsOfEntry = 60
	nextShown   = 3  // next runs of an entry in the list
	runsOfDay   = 3  // runs of one entry on one day that the calendar names one by one
	linesOfDay  = 12 // lines on a day of the calendar
	maxCalendar = 200
)

// scheduleEntry is an entry of the schedule, as the list shows it.
type scheduleEntry struct {
	Name, Function, Trigger string
	Word, Class             string // state of the entry, and its style
	Fault                   string // why the entry does not run; "" if it does
	Skipped                 string // why it did not run when it was last due
	LastRun                 scheduledRun
	lastRun                 time.Time
	LastJob                 string      // id of the job that the last run has started; "": none is known
	Outcome                 *jobOutcome // of LastJob; nil: it is not known
	Next                    []scheduledRun
	Target, Limits          string      // of the saved job; "": they are not known
	runs                    []time.Time // all next runs that the master has named
	// Saved means that the entry is a saved one; Revision and Off are of it. Job is the saved job that
	// it runs, or "".
	Saved       bool
	Revision    int64
	Off         bool
	Job         string
	Description string
	RunURL      string // URL of the form that runs the same now; "" if there is none
}

// scheduledRun is a run that was or is to come; Clock is its time by the masters' clock.
type scheduledRun struct {
	At    moment
	Clock string
}

func (c *Console) scheduledRun(at time.Time) scheduledRun {
	if at.IsZero() {
		return scheduledRun{}
	}
	now := c.cfg.Now()
	return scheduledRun{momentAt(now, at), timeOfDayWord(now.In(at.Location()), at)}
}

// schedulePage is the data of the page Schedule.
type schedulePage struct {
	Off     bool   // the whole schedule is switched off
	Owner   string // the node that runs the schedule; "" without a cluster
	Entries []scheduleEntry
	Weeks   [][]calendarDay
	// Weekdays are the days of Weeks, from today on.
	Weekdays []string
	Zone     string // offset of the calendar's times
	Left     int    // entries that the calendar leaves out
	MayAdd   bool   // the user may save entries
	MayDrop  bool   // the user may delete saved entries
	pager
}

// calendarDay is a day of the calendar.
type calendarDay struct {
	Weekday, Date string
	Today         bool
	Lines         []calendarLine
	More          int // lines that are left out
}

// calendarLine lists the runs of an entry on a day.
type calendarLine struct {
	Past bool   // the run was the last one
	At   string // time of day, or ""
	Name string
	Note string // how often it runs on that day, if that is more than At says
	sort string
}

func showSchedule(c *Console, ctx context.Context, v *visit) (Answer, error) {
	got, err := v.runCommand(ctx, "runner", "schedule.list", "count", int64(runsOfEntry))
	if err != nil {
		return Answer{}, err
	}

	m, ok := got.(*value.Map)
	if !ok {
		return Answer{}, &Refusal{http.StatusBadGateway,
			"The master does not tell its schedule: " + briefName(value.StrMax(got, maxName))}
	}

	d := schedulePage{Off: m.Value("enabled") == false}
	if c.cfg.Cluster {
		d.Owner = ownerOf(ctx, v, m.Value("owner") == true)
	}

	all := c.entriesOf(m.Map("entries"), d.Off)
	if v.mayCall("runner", savedSchedules) {
		d.MayAdd, d.MayDrop = v.mayCall("runner", setSavedSchedule), v.mayCall("runner", deleteSaved)
		saved, err := savedObjects(ctx, v, savedSchedules)
		if err != nil {
			return Answer{}, err
		}
		known, err := savedObjects(ctx, v, savedJobs)
		if err != nil {
			return Answer{}, err
		}
		all = c.withSaved(all, saved, known)
	}
	var lo, hi int
	lo, hi, d.pager = pageOf(len(all), perPage, c.base+"/schedule", v.query)
	d.Entries = all[lo:hi]

	if err := d.fillOutcomes(c, ctx, v); err != nil {
		return Answer{}, err
	}

	drawn := all[:min(len(all), maxCalendar)]
	d.Left = len(all) - len(drawn)
	today := c.cfg.Now()
	if first := firstRun(drawn); !first.IsZero() {
		today = today.In(first.Location())
	}
	d.Weeks = calendarOf(drawn, today)
	d.Zone = strings.TrimSuffix(today.Format("UTC-07:00"), "+00:00")
	for n := range 7 {
		d.Weekdays = append(d.Weekdays, today.AddDate(0, 0, n).Weekday().String())
	}

	return c.render(v, "schedule", http.StatusOK, page{Title: "Schedule", Data: d, Notice: savedNotice(v.query)})
}

// fillOutcomes asks the master what became of the jobs of the last runs.
func (d *schedulePage) fillOutcomes(c *Console, ctx context.Context, v *visit) error {
	var ids []string
	for _, e := range d.Entries {
		if e.LastJob != "" {
			ids = append(ids, e.LastJob)
		}
	}

	byJID, err := c.outcomesOf(ctx, v, ids)
	for i := range d.Entries {
		d.Entries[i].Outcome = byJID[d.Entries[i].LastJob]
	}
	return err
}

// ownerOf returns a name for the master that runs the schedule of the cluster. this means that it is
// the master that answers.
func ownerOf(ctx context.Context, v *visit, this bool) string {
	if v.mayCall("runner", "cluster.members") {
		got, err := v.runCommand(ctx, "runner", "cluster.members")
		m, _ := got.(*value.Map)
		if owner := m.Str("owner"); err == nil && owner != "" {
			return briefName(owner)
		}
	}
	if this {
		return "this node"
	}
	return "another node of the cluster"
}

// entriesOf returns the entries in the answer of schedule.list: first those that do not run because
// of a fault, then the others by their next run.
func (c *Console) entriesOf(m *value.Map, off bool) (all []scheduleEntry) {
	for k, x := range m.All() {
		e, _ := x.(*value.Map)
		entry := scheduleEntry{
			Name:     briefName(value.Str(k)),
			Function: briefName(e.Str("function")),
			Trigger:  triggerWord(briefName(e.Str("trigger"))),
			Fault:    briefName(e.Str("does_not_run")),
			Skipped:  strings.ReplaceAll(briefName(e.Str("skipped")), "_", " "), // a word of Salt, as in_skip_range
			LastRun:  c.scheduledRun(timeOf(e.Str("last_run"))),
			lastRun:  timeOf(e.Str("last_run")),
		}

		if jid := e.Str("last_jid"); jobs.Valid(jid) {
			entry.LastJob = jid
		}

		running, _ := e.Int("running")
		switch {
		case entry.Fault != "":
			entry.Word, entry.Class = "does not run", "failed"
		case off || e.Value("enabled") == false:
			entry.Word, entry.Class = "off", "faint"
		case running > 0:
			entry.Word, entry.Class = "running", "changed"
		case e.Value("dry_run") == true:
			entry.Word, entry.Class = "dry run", "differs"
		default:
			entry.Word, entry.Class = "on", "ok"
		}

		for _, text := range e.Texts("next") {
			if at := timeOf(text); !at.IsZero() && len(entry.runs) < runsOfEntry {
				entry.runs = append(entry.runs, at)
			}
		}

		for _, at := range entry.runs[:min(len(entry.runs), nextShown)] {
			entry.Next = append(entry.Next, c.scheduledRun(at))
		}

		all = append(all, entry)
	}

	slices.SortStableFunc(all, compareEntries)
	return all
}

// withSaved marks the entries that are saved ones, and adds those that the master does not run.
func (c *Console) withSaved(all []scheduleEntry, saved, savedOnes *value.Map) []scheduleEntry {
	byName := make(map[string]int, len(all))
	for i, e := range all {
		byName[e.Name] = i
	}

	for k, x := range saved.All() {
		name := value.Str(k)
		m, _ := x.(*value.Map)
		at, runs := byName[name]
		if !runs || m.Str("note") != "" { // the configuration has an entry of this name
			entry := scheduleEntry{
				Name:  briefName(name),
				Word:  "does not run",
				Class: "failed",
				Fault: briefName(cmp.Or(m.Str("fault"), m.Str("note"))),
			}
			if entry.Fault == "" { // it was saved seconds ago
				entry.Word, entry.Class = "begins soon", "faint"
			}
			all = append(all, entry)
			at = len(all) - 1
		}

		e := &all[at]
		e.Saved, e.Job = true, briefName(m.Str("saved"))
		e.Revision, _ = m.Int("revision")
		e.Off = m.Value("enabled") == false
		e.Description = briefName(m.Str("description"))
		e.RunURL = c.runNowURL(m)
		if cron := m.Str("cron"); cron != "" {
			e.Trigger = briefName("by cron: " + cron)
		}
		if when, ok := m.Value("when").(string); ok {
			e.Trigger = briefName("at " + when)
			if timeOfDay.MatchString(when) {
				e.Trigger = "daily at " + when
			}
		}
		if job := savedOnes.Map(m.Str("saved")); job != nil {
			e.Target = briefName(targetWord(job))
			e.Limits = briefName(limitWords(job))
		}
	}

	slices.SortStableFunc(all, compareEntries)
	return all
}

// targetWord returns the minions of a saved job: the name of a saved target, or an expression.
func targetWord(job *value.Map) string {
	switch kind := job.Str("target_type"); kind {
	case "":
		return "the saved target " + job.Str("target")
	case "glob":
		return job.Str("target")
	default:
		return job.Str("target") + " (" + kind + ")"
	}
}

// runNowURL returns the URL of the form that runs what a saved entry runs, or "" if the form cannot
// hold it.
func (c *Console) runNowURL(m *value.Map) string {
	job, path, q := m.Str("saved"), "/saved/run?", url.Values{}
	if job != "" {
		q.Set("name", job)
		for k, v := range m.Map("kwargs").All() {
			q.Set("field_"+value.Str(k), settingText(v))
		}
	} else {
		path = "/run?"
		q.Set("kind", kindRunner)
		q.Set("fun", m.Str("function"))
		q.Set("arg", savedLines(m.List("args"), m.Map("kwargs")))
	}

	if text := q.Encode(); len(text) < 4096 {
		return c.base + path + text
	}
	return ""
}

func compareEntries(a, b scheduleEntry) int {
	rank := func(e scheduleEntry) int {
		switch {
		case e.Fault != "":
			return 0
		case len(e.runs) > 0:
			return 1
		}
		return 2
	}
	if r := cmp.Compare(rank(a), rank(b)); r != 0 || rank(a) != 1 {
		return cmp.Or(r, cmp.Compare(a.Name, b.Name))
	}
	return cmp.Or(a.runs[0].Compare(b.runs[0]), cmp.Compare(a.Name, b.Name))
}

// triggerWord returns a trigger of schedule.list in words that need no knowledge of its keys.
func triggerWord(trigger string) string {
	switch trigger {
	case "cron":
		return "by cron"
	case "when":
		return "at set times"
	}

	text, ok := strings.CutPrefix(trigger, "every ")
	every, err := time.ParseDuration(text)
	if !ok || err != nil || every < time.Second {
		return trigger
	}

	for _, u := range []struct {
		unit time.Duration
		word string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if every%u.unit == 0 {
			return everyWord(int(every/u.unit), u.word)
		}
	}

	return everyWord(int(every/time.Second), "second")
}

func everyWord(n int, unit string) string {
	if n == 1 {
		return "every " + unit
	}
	return fmt.Sprintf("every %d %ss", n, unit)
}

// timeOf returns the time in a text of RFC 3339, or zero.
func timeOf(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Year() < 2000 || at.Year() > 9999 {
		return time.Time{}
	}
	return at
}

func firstRun(entries []scheduleEntry) (first time.Time) {
	for _, e := range entries {
		if len(e.runs) > 0 && (first.IsZero() || e.runs[0].Before(first)) {
			first = e.runs[0]
		}
	}
	return first
}

// calendarOf returns the next calendarDays days in weeks that begin with today. A day of a run is
// the one that the master's clock shows then, whose offset each run has.
func calendarOf(entries []scheduleEntry, today time.Time) (weeks [][]calendarDay) {
	day := func(t time.Time) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	}

	begin := day(today)
	lines := make([][]calendarLine, calendarDays)
	for _, e := range entries {
		byDay := make([][]time.Time, calendarDays)
		goesOn := calendarDays
		for _, at := range e.runs {
			if n := int(day(at).Sub(begin) / (24 * time.Hour)); n >= 0 && n < calendarDays {
				byDay[n] = append(byDay[n], at)
			}
		}

		if len(e.runs) == runsOfEntry {
			goesOn = max(int(day(e.runs[runsOfEntry-1]).Sub(begin)/(24*time.Hour)), 0)
		}

		for n, runs := range byDay {
			lines[n] = append(lines[n], linesOf(e, runs, n >= goesOn)...)
		}
		if day(e.lastRun).Equal(begin) && len(byDay[0]) <= runsOfDay {
			clock := e.lastRun.Format("15:04")
			lines[0] = append(lines[0], calendarLine{
				At:   clock,
				Name: e.Name,
				Note: "has run",
				Past: true,
				sort: clock,
			})
		}
	}

	var week []calendarDay
	for n := range calendarDays {
		slices.SortStableFunc(lines[n], func(a, b calendarLine) int { return cmp.Compare(a.sort, b.sort) })
		shown := lines[n][:min(len(lines[n]), linesOfDay)]
		week = append(week, calendarDay{
			Weekday: begin.AddDate(0, 0, n).Format("Mon"),
			Date:    begin.AddDate(0, 0, n).Format("2 Jan"),
			Today:   n == 0,
			Lines:   shown,
			More:    len(lines[n]) - len(shown),
		})

		if len(week) == 7 {
			weeks, week = append(weeks, week), nil
		}
	}

	return weeks
}

// linesOf returns the lines of an entry for a day. goesOn means that the entry has more runs on that
// day than the master has named.
func linesOf(e scheduleEntry, runs []time.Time, goesOn bool) (lines []calendarLine) {
	switch {
	case goesOn:
		return []calendarLine{{Name: e.Name, Note: e.Trigger + ", all day", sort: "~"}}
	case len(runs) > runsOfDay:
		return []calendarLine{{
			At:   runs[0].Format("15:04"),
			Name: e.Name,
			Note: fmt.Sprintf("%d times until %s", len(runs), runs[len(runs)-1].Format("15:04")),
			sort: runs[0].Format("15:04:05"),
		}}
	}

	for _, at := range runs {
		lines = append(lines, calendarLine{At: at.Format("15:04"), Name: e.Name, sort: at.Format("15:04:05")})
	}
	return lines
}
