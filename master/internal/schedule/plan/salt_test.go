package plan

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// salt is a process of testdata/evaluator.py, with Salt's own evaluator, croniter and dateutil.
type salt struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startSalt(t *testing.T) *salt {
	t.Helper()
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to compare with its schedule")
	}

	cmd := exec.Command(python, "testdata/evaluator.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})

	return &salt{in, bufio.NewReaderSize(out, 1<<20)}
}

// ask sends a question and reads the answer.
func (s *salt) ask(t *testing.T, question, answer any) {
	t.Helper()
	b, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.in.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}

	line, err := s.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("Salt ended: %v", err)
	}

	if err := json.Unmarshal(line, answer); err != nil {
		t.Fatalf("%v in %.200s", err, line)
	}
}

// scenario is a schedule on a clock that is looked at in steps.
type scenario struct {
	Schedule *value.Map      `json:"-"`
	Raw      json.RawMessage `json:"schedule"` // the same, for Salt
	Start    string          `json:"start"`
	Tick     int             `json:"tick"`   // seconds, the loop_interval
	Looks    int             `json:"looks"`  // how many
	Jitter   int             `json:"jitter"` // some looks are late, by less than so many seconds
	Lasts    int             `json:"lasts"`  // seconds that each run takes
}

// outcomeOf is what Salt did.
type outcomeOf struct {
	Ran    []string          `json:"ran"`
	Crash  string            `json:"crash"`
	Errors map[string]string `json:"errors"`
}

// play runs a scenario through Plan and Step.
func play(t *testing.T, sc scenario) (ran []string, problems []Problem) {
	t.Helper()
	p, problems := Read(sc.Schedule, nil)
	begin, err := time.Parse(time.RFC3339, sc.Start+"Z")
	if err != nil {
		t.Fatal(err)
	}

	drawn := int64(0)
	look := Look{
		Window:  time.Duration(sc.Tick) * time.Second,
		Enabled: p.Enabled,
		Splay: func(_ *Entry, _ time.Time, low, high int64) int64 {
			drawn++
			return low + drawn*7919%(high-low+1)
		},
	}

	states := make([]State, len(p.Entries))
	ends := make([][]int, len(p.Entries))
	offset := 0
	for i := range sc.Looks {
		look.Now = begin.Add(time.Duration(offset) * time.Second)
		for n, e := range p.Entries {
			ends[n] = slices.DeleteFunc(ends[n], func(end int) bool { return end <= offset })
			look.Running = len(ends[n])
			var fun string
			if fun, states[n] = e.Step(states[n], look); fun != "" && !e.DryRun {
				ran = append(ran, fmt.Sprint(e.Name, " ", offset, " ", fun))
				ends[n] = append(ends[n], offset+sc.Lasts)
			}
		}

		offset += sc.Tick
		if sc.Jitter > 0 && i*7919%11 == 0 {
			offset += i % sc.Jitter
		}
	}

	return ran, problems
}

// TestScheduleRunsWhenSaltDoes (F1, M4) runs generated schedules beside Salt's own evaluator, on
// one clock, and wants the same runs at the same times, in the same order. SALTERN_SCHEDULES=2000
// runs so many of each kind, those of the first kind for a whole year. SALTERN_FIRST_SCHEDULE=1100
// leaves out those of the first kind before that number.
func TestScheduleRunsWhenSaltDoes(t *testing.T) {
	t.Parallel()
	s := startSalt(t)
	schedules := 24
	yearly := 400 // looks, an hour apart
	if n, err := strconv.Atoi(os.Getenv("SALTERN_SCHEDULES")); err == nil {
		schedules = n
		yearly = 365 * 24
	}

	seed := uint64(1)
	if n, err := strconv.ParseUint(os.Getenv("SALTERN_SEED"), 10, 64); err == nil {
		seed = n
	}

	first, _ := strconv.Atoi(os.Getenv("SALTERN_FIRST_SCHEDULE"))
	for _, kind := range []struct {
		name  string
		tick  int
		looks int
		crowd int
		first int
	}{
		{"each hour of a year", 3600, yearly, 1, first},
		{"each minute", 60, 400, 1, 0},
		{"each second", 1, 400, 1, 0},
		{"each hour, with many limits", 3600, 200, 3, 0},
	} {
		t.Run(kind.name, func(t *testing.T) {
			runs, crashes := 0, 0
			for i := kind.first; i < schedules; i++ {
				r := rand.New(rand.NewPCG(seed, uint64(i*100+kind.tick)))
				sc := generate(r, kind.tick, kind.crowd)
				sc.Looks = kind.looks
				n, crashed := compare(t, s, sc)
				runs += n
				crashes += crashed
				if (i+1)%100 == 0 {
					t.Logf("%d schedules are compared", i+1)
				}
			}

			compared := schedules - kind.first
			t.Logf("%d schedules, %d runs; Salt stopped at an error of its own in %d", compared, runs, crashes)
			if runs < compared {
				t.Errorf("%d runs of %d schedules show nothing", runs, compared)
			}
		})
	}
}

// compare has Salt and this package play a scenario.
func compare(t *testing.T, s *salt, sc scenario) (runs, crashed int) {
	t.Helper()
	got, problems := play(t, sc)
	for _, p := range problems {
		if p.Refused {
			t.Fatalf("%+v in %s", p, value.Repr(sc.Schedule))
		}
	}

	salts := s.play(t, sc)
	if salts.Crash != "" {
		t.Errorf("Salt stops at %s in %s", salts.Crash, value.Repr(sc.Schedule))
		return 0, 1
	}

	want := salts.Ran
	if !slices.Equal(got, want) {
		n := 0
		for n < min(len(got), len(want)) && got[n] == want[n] {
			n++
		}
		t.Errorf("from run %d on:\n  here %.5q\n  Salt %.5q\n%s\nfrom %s, looks every %d s + %d s, each takes %d s; %v",
			n, got[n:min(n+5, len(got))], want[n:min(n+5, len(want))], value.Repr(sc.Schedule), sc.Start,
			sc.Tick, sc.Jitter, sc.Lasts, salts.Errors)
	}

	return len(want), 0
}

// TestOverruledSkips: after lets an entry run that skip_during_range has skipped. It ran with
// an old splay then, between two times at which it was due: the interval goes on as it was.
func TestOverruledSkips(t *testing.T) {
	t.Parallel()
	entry := value.NewMap(
		"function", "f.n",
		"seconds", int64(10),
		"run_on_start", false,
		"splay", int64(1),
		"skip_during_range", value.NewMap("start", "09:00", "end", "12:00"),
		"after", "10:00:25",
	)

	sc := scenario{Schedule: value.NewMap("e", entry), Start: "2026-11-28T10:00:00", Tick: 1, Looks: 60}
	want := []string{"e 26 f.n", "e 32 f.n", "e 43 f.n", "e 54 f.n"}
	if got, _ := play(t, sc); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}

	t.Run("as Salt", func(t *testing.T) {
		if got := startSalt(t).play(t, sc).Ran; !slices.Equal(got, want) {
			t.Errorf("Salt: %q, not %q", got, want)
		}
	})

	t.Run("what ran was not skipped", func(t *testing.T) {
		p, _ := Read(sc.Schedule, nil)
		begin := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
		look := Look{Enabled: true, Splay: SameSplay}
		state := p.Entries[0].Walk(State{}, begin, begin.Add(time.Minute), look,
			func(time.Time, string) bool { return false })
		if state.LastRun.IsZero() || state.Skipped != "" {
			t.Errorf("skipped as %q at the look that ran: %+v", state.Skipped, state)
		}
	})
}

// play runs a scenario through Salt's evaluator.
func (s *salt) play(t *testing.T, sc scenario) (out outcomeOf) {
	t.Helper()
	text, ok := value.JSON{}.Text(sc.Schedule)
	if !ok {
		t.Fatalf("%s is no JSON", value.Repr(sc.Schedule))
	}
	sc.Raw = json.RawMessage(text)
	s.ask(t, sc, &out)
	return out
}

// TestTimesAsSalt compares what is read of times with what the libraries read that Salt asks.
func TestTimesAsSalt(t *testing.T) {
	t.Parallel()
	s := startSalt(t)
	t.Run("moments", func(t *testing.T) { momentsAsDateutil(t, s) })
	t.Run("cron", func(t *testing.T) { cronsAsCroniter(t, s) })
	t.Run("once", func(t *testing.T) { onceAsStrptime(t, s) })
	t.Run("refusals", func(t *testing.T) { refusalsOfSalt(t, s) })
}

// momentsAsDateutil compares what is read of a time with what dateutil, which Salt asks,
// reads of it, on several days. What dateutil reads in another way is refused here.
func momentsAsDateutil(t *testing.T, s *salt) {
	r := rand.New(rand.NewPCG(3, 3))
	days := []string{"2026-11-28", "2027-02-28", "2028-02-29", "2026-12-31", "2027-01-01"}
	var texts []string
	for _, layout := range momentLayouts {
		for range 20 {
			texts = append(texts, time.Unix(r.Int64N(4e9), 0).UTC().Format(layout))
		}
	}

	words := []string{"17:00", "5pm", "Monday", "2027-01-31", "1/31/2027", "13/1/2027", "January", "31",
		"31st", "2027", "at", "on", ",", "12 am", "0:00", "24:00", "7:60", "Feb", "29", "30", "pm", "noon",
		"T", "Z", "1/2", "20270131", "5", "-"}
	for range 3000 {
		var parts []string
		for range 1 + r.IntN(4) {
			parts = append(parts, words[r.IntN(len(words))])
		}
		texts = append(texts, strings.Join(parts, " "))
	}

	var answer struct {
		Moments [][]*string `json:"moments"`
	}
	s.ask(t, map[string]any{"moments": texts, "days": days}, &answer)
	read := 0
	for i, text := range texts {
		m, err := parseMoment(text)
		if err != nil {
			continue
		}

		read++
		for j, day := range days {
			now, _ := time.Parse(time.DateOnly, day)
			got := m.onDayOf(now).Format("2006-01-02T15:04:05")
			if want := answer.Moments[i][j]; want == nil || *want != got {
				t.Errorf("%q on %s is %s, not %s", text, day, got, value.Repr(want))
			}
		}
	}

	t.Logf("%d of %d texts are read", read, len(texts))
	if read < len(momentLayouts)*20 {
		t.Errorf("%d texts are read", read)
	}
}

// cronsAsCroniter compares expressions with croniter, which Salt asks: the same are
// refused, and the others have the same next times.
func cronsAsCroniter(t *testing.T, s *salt) {
	r := rand.New(rand.NewPCG(4, 4))
	g := generator{r, time.Time{}, 1, 1}
	pieces := []string{"*", "*/5", "5", "0", "7", "31", "1-5", "5-1", "5-1/2", "10/3", "59/15", "mon",
		"fri-sun", "sun-sun", "jan", "dec-feb", "l", "l5", "l7", "2#1", "sun#5", "mon-wed#2", "15w", "w1",
		"31w", "?", "h", "r", "1,15", "29-31", "10-l", "0-6", "0-7", "1-7", "1-31", "*,5", "", "-3", "3-",
		"1/0", "60", "99", "a", "7-7", "6/2", "2027", "2027-2030", "1-1"}

	var texts []string
	for range 400 {
		texts = append(texts, g.cron())
	}

	for range 2500 {
		var parts []string
		for range pick(g, 5, 5, 5, 5, 6, 7, 4) {
			parts = append(parts, pick(g, pick(g, "*", "*", "0"), pieces[r.IntN(len(pieces))]))
		}
		texts = append(texts, strings.Join(parts, " "))
	}

	const count = 6
	now := time.Date(2026, 1, 30, 23, 58, 7, 0, time.UTC)
	var answer struct {
		Crons [][]*string `json:"crons"`
	}
	s.ask(t, map[string]any{"crons": texts, "now": now.Format("2006-01-02T15:04:05"), "count": count}, &answer)
	read := 0
	for i, text := range texts {
		var got []string
		c, err := parseCron(text)
		at, ok := now, err == nil
		for ok && len(got) < count {
			if at, ok = c.nextAfter(at); ok {
				got = append(got, at.Format("2006-01-02T15:04:05"))
			}
		}

		if len(got) == count {
			read++
		}

		var want []string
		for _, w := range answer.Crons[i] {
			if w != nil {
				want = append(want, *w)
			}
		}

		random := strings.Contains(text, "r") && err != nil && strings.Contains(err.Error(), "random")
		if !slices.Equal(got, want) && !random {
			t.Errorf("%q: %v (%v), Salt %v", text, got, err, want)
		}
	}

	t.Logf("%d of %d expressions are read", read, len(texts))
	if read < 500 {
		t.Errorf("%d expressions are read", read)
	}
}

// onceAsStrptime compares formats of once_fmt with Python's.
func onceAsStrptime(t *testing.T, s *salt) {
	r := rand.New(rand.NewPCG(5, 5))
	parts := []string{"%Y", "%y", "%m", "%d", "%H", "%I", "%M", "%S", "%p", "%B", "%b", "%A", "%a", "%%"}
	values := []string{"2027", "27", "1", "01", "12", "13", "31", "30", "0", "59", "23", "am", "PM",
		"January", "feb", "Monday", "tue", "%", "99"}
	layouts := map[string]string{
		"%Y-%m-%dT%H:%M:%S":  "2006-01-02T15:04:05",
		"%b %d %Y %I:%M%p":   "Jan 02 2006 03:04PM",
		"%A, %d %B %Y %H:%M": "Monday, 02 January 2006 15:04",
	}

	var rows [][2]string
	for _, format := range slices.Sorted(maps.Keys(layouts)) {
		for range 50 {
			rows = append(rows, [2]string{time.Unix(r.Int64N(4e9), 0).UTC().Format(layouts[format]), format})
		}
	}

	for range 6000 {
		var format, text []string
		for range 1 + r.IntN(3) {
			format = append(format, parts[r.IntN(len(parts))])
			text = append(text, values[r.IntN(len(values))])
		}
		rows = append(rows, [2]string{strings.Join(text, " "), strings.Join(format, " ")})
	}

	var answer struct {
		Onces []*string `json:"onces"`
	}
	s.ask(t, map[string]any{"onces": rows}, &answer)

	for i, row := range rows {
		at, err := strptime(row[0], row[1])
		want := answer.Onces[i]
		switch {
		case err != nil && want != nil:
			t.Errorf("%q by %s is refused: %v; Salt %s", row[0], row[1], err, *want)
		case err == nil && (want == nil || *want != at.Format("2006-01-02T15:04:05")):
			t.Errorf("%q by %s is %v; Salt %s", row[0], row[1], at, value.Repr(want))
		}
	}
}

// generate makes a scenario. Limits of an entry are crowd times as likely as in a plain one.
func generate(r *rand.Rand, tick, crowd int) scenario {
	begin := time.Date(2026, time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
	g := generator{r, begin, tick, crowd}
	sc := scenario{
		Schedule: value.NewMap(),
		Start:    begin.Format("2006-01-02T15:04:05"),
		Tick:     tick,
		Lasts:    r.IntN(5 * tick),
	}

	if g.one(3) {
		sc.Jitter = 1 + r.IntN(2*tick)
	}

	if g.one(12) {
		sc.Schedule.Set("enabled", g.one(2))
	}

	if g.one(8) {
		sc.Schedule.Set("splay", g.splay())
	}

	if g.one(12) {
		sc.Schedule.Set("skip_during_range", g.span())
	}

	for i := range 1 + r.IntN(3) {
		sc.Schedule.Set(fmt.Sprint("e", i), g.entry(i))
	}

	return sc
}

type generator struct {
	*rand.Rand
	begin time.Time
	tick  int
	crowd int
}

// one is true once in n times.
func (g generator) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

func (g generator) entry(i int) *value.Map {
	e := value.NewMap(pick(g, "function", "function", "func", "fun"), fmt.Sprint("f.n", i))
	g.trigger(e)
	optional := func(odds int, key string, v func() any) {
		if g.one(odds) {
			e.Set(key, v())
		}
	}

	flag := func() any { return g.one(2) }
	optional(4, "run_on_start", flag)
	optional(8, "enabled", flag)
	optional(12, "dry_run", flag)
	optional(5, "maxrunning", func() any { return int64(g.IntN(4)) })
	optional(8, "jid_include", flag)
	optional(4/g.crowd, "splay", g.splay)
	optional(4/g.crowd, "range", func() any {
		s := g.span()
		if g.one(2) {
			s.Set("invert", g.one(2))
		}
		return s
	})

	optional(5/g.crowd, "skip_during_range", func() any { return g.span() })
	optional(4/g.crowd, "run_after_skip_range", flag)
	optional(6/g.crowd, "until", g.moment)
	optional(6/g.crowd, "after", g.moment)
	optional(10/g.crowd, "skip_explicit", g.explicit)
	optional(10/g.crowd, "run_explicit", g.explicit)

	return e
}

// trigger sets what makes an entry due.
func (g generator) trigger(e *value.Map) {
	switch g.IntN(4) {
	case 0:
		for _, u := range []string{"seconds", "minutes", "hours", "days"} {
			if !g.one(2) {
				continue
			}
			n := int64(1 + g.IntN(90))
			e.Set(u, pick[any](g, n, n, fmt.Sprint(n), float64(n)+0.5))
		}

		if e.Len() == 1 {
			e.Set("seconds", int64(1+g.IntN(20*g.tick)))
		}
	case 1:
		e.Set("cron", g.cron())
	case 2:
		at := g.near()
		e.Set("once", at.Format("2006-01-02T15:04:05"))
		if g.one(2) {
			e.Set("once", at.Format("Jan 02 2006 03:04PM"))
			e.Set("once_fmt", "%b %d %Y %I:%M%p")
		}
	default:
		if g.one(2) {
			e.Set("when", g.moment())
			return
		}

		var list []any
		for range 1 + g.IntN(4) {
			list = append(list, g.moment())
		}

		e.Set("when", list)
	}
}

// near is a time within the scenario, or not long before or after it.
func (g generator) near() time.Time {
	span := 9000 * g.tick
	if g.one(2) {
		span = 500 * g.tick
	}
	return g.begin.Add(time.Duration(g.IntN(span)-span/10) * time.Second)
}

func (g generator) splay() any {
	n := int64(1 + g.IntN(4*g.tick))
	if g.one(2) {
		return n
	}
	return value.NewMap("start", n, "end", n+int64(g.IntN(6*g.tick)))
}

func (g generator) span() *value.Map {
	a, b := g.near(), g.near()
	if b.Before(a) {
		a, b = b, a
	}
	layout := pick(g, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "1/2/2006 3:04:05pm", "January 2, 2006 3:04:05 PM")
	if g.one(2) {
		start := g.IntN(86000)
		end := start + 1 + g.IntN(86399-start)
		return value.NewMap("start", clock(start), "end", clock(end))
	}
	return value.NewMap("start", a.Format(layout), "end", b.Add(time.Second).Format(layout))
}

func clock(seconds int) string {
	return time.Date(2000, 1, 1, 0, 0, seconds, 0, time.UTC).Format("15:04:05")
}

var momentLayouts = []string{
	"15:04", "15:04:05", "3:04pm", "3:04 PM", "3PM", "3 am", "Monday 15:04", "Mon 3:04pm", "Monday", "15:04 on Monday",
	"2006-01-02", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006/1/2 3:04:05pm", "1/2/2006 3:04pm", "01/02/2006", "1-2-2006 15:04",
	"January 2, 2006 3:04pm", "Jan 2 2006 15:04", "2 January 2006 15:04", "2 Jan 2006", "January 2 15:04", "2 Jan 3pm", "Mon, 2 Jan 2006 15:04:05",
	"15:04 2006-01-02", "3:04pm January 2, 2006",
}

func (g generator) moment() any { return g.near().Format(pick(g, momentLayouts...)) }

func (g generator) explicit() any {
	var list []any
	for range 1 + g.IntN(3) {
		list = append(list,
			value.NewMap("time", g.near().Format("2006-01-02T15:04:05"), "time_fmt", "%Y-%m-%dT%H:%M:%S"))
	}
	return list
}

func (g generator) cron() string {
	part := func(low, high int) string {
		a := low + g.IntN(high-low+1)
		b := low + g.IntN(high-low+1)
		switch g.IntN(9) {
		case 0:
			return fmt.Sprint(a)
		case 1:
			return fmt.Sprint(a, ",", b)
		case 2:
			return fmt.Sprint(min(a, b), "-", max(a, b))
		case 3:
			return fmt.Sprint("*/", 1+g.IntN(high))
		case 4:
			return fmt.Sprint(a, "/", 1+g.IntN(high))
		case 5:
			return fmt.Sprint(a, "-", b, "/", 1+g.IntN(5))
		}

		return "*"
	}

	text := fmt.Sprint(part(0, 59), " ", part(0, 23), " ", part(1, 31), " ", part(1, 12), " ", part(0, 7))
	switch g.IntN(8) {
	case 0:
		return pick(g, "@hourly", "@daily", "@weekly", "@monthly", "@midnight", "* * * * *", "*/5 * * * *",
			"0 3 * * mon-fri", "30 2 l * *", "0 4 * * sun#1,wed#3", "15 6 15w * ?", "0 0 * * l5",
			"0 0 1 jan-mar sat-tue")
	case 1:
		return text + " " + part(0, 59)
	}

	return text
}
