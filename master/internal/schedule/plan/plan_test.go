package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// TestWalkFindsEachLook compares Walk, which leaves out looks that find nothing, with a look
// each second: the same runs, and the same State after them.
func TestWalkFindsEachLook(t *testing.T) {
	t.Parallel()
	const hours = 26
	runs := 0
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 7))
		sc := generate(r, 12, 1)
		p, _ := Read(sc.Schedule, nil)
		begin, err := time.Parse(time.RFC3339, sc.Start+"Z")
		if err != nil {
			t.Fatal(err)
		}

		look := Look{Enabled: p.Enabled, Splay: SameSplay}

		for _, e := range p.Entries {
			var want, got []string
			var state State
			end := begin.Add(hours * time.Hour)
			each := look
			each.Window = window

			for now := begin.Add(Tick); !now.After(end); now = now.Add(Tick) {
				each.Now = now
				var fun string
				if fun, state = e.Step(state, each); fun != "" {
					want = append(want, now.Format(time.RFC3339)+" "+fun)
				}

				if len(want) == maxSteps/2 {
					end = now
				}
			}

			walked := e.Walk(State{}, begin, end, look, func(at time.Time, fun string) bool {
				got = append(got, at.Format(time.RFC3339)+" "+fun)
				return true
			})
			if !slices.Equal(got, want) || walked.Next != state.Next || walked.LastRun != state.LastRun ||
				walked.Armed != state.Armed {
				t.Fatalf("%s of %s from %s:\n%.20q\n%.20q\n%+v\n%+v", e.Name, value.Repr(sc.Schedule),
					sc.Start, got, want, walked, state)
			}

			runs += len(want)
		}
	}

	if runs < 400 {
		t.Errorf("%d runs show nothing", runs)
	}
}

// TestUpcoming lists runs to come.
func TestUpcoming(t *testing.T) {
	now := time.Date(2026, 11, 28, 16, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		entry *value.Map
		want  string
	}{
		{"cron", value.NewMap("cron", "0 3 * * mon-fri"), "2026-11-30 03:00, 2026-12-01 03:00, 2026-12-02 03:00"},
		{"leap days", value.NewMap("cron", "0 0 29 2 *"), "2028-02-29 00:00, 2032-02-29 00:00, 2036-02-29 00:00"},
		{"daily", value.NewMap("when", []any{"5:00pm", "9:00am"}),
			"2026-11-28 17:00, 2026-11-29 09:00, 2026-11-29 17:00"},
		{"weekly", value.NewMap("when", "Monday 5:00pm"), "2026-11-30 17:00, 2026-12-07 17:00, 2026-12-14 17:00"},
		{"once", value.NewMap("once", "2027-01-01T00:00:00"), "2027-01-01 00:00"},
		{"past", value.NewMap("once", "2025-01-01T00:00:00"), ""},
		{"interval", value.NewMap("hours", int64(6), "run_on_start", false),
			"2026-11-28 22:00, 2026-11-29 04:00, 2026-11-29 10:00"},
		{"by night",
			value.NewMap("hours", int64(6), "run_on_start", false, "range",
				value.NewMap("start", "02:00", "end", "04:00")),
			"2026-11-29 02:00, 2026-11-30 02:00, 2026-12-01 02:00"},
		{"disabled", value.NewMap("hours", int64(6), "enabled", false), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.entry.Set("function", "a.b")
			p, problems := Read(value.NewMap("e", c.entry), nil)
			if len(problems) > 0 {
				t.Fatal(problems)
			}

			var got []string
			for _, run := range p.Upcoming(p.Entries[0], State{}, now.Add(-Tick), 3) {
				got = append(got, run.At.Format("2006-01-02 15:04"))
			}

			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("%s, not %s", text, c.want)
			}
		})
	}
}

// TestNothingIsUpcoming: no run is listed where none is asked for, or none comes; and a schedule
// that is switched off is not searched for years.
func TestNothingIsUpcoming(t *testing.T) {
	now := time.Date(2026, 11, 28, 16, 0, 0, 0, time.UTC)
	option := value.NewMap()
	for i := range 200 {
		option.Set(fmt.Sprint("e", i), value.NewMap("function", "a.b", "cron", "30 3 * * mon-fri"))
	}

	on, _ := Read(option, nil)
	option.Set("enabled", false)
	off, _ := Read(option, nil)
	began := time.Now()

	for i := range on.Entries {
		if runs := on.Upcoming(on.Entries[i], State{}, now, 0); runs != nil {
			t.Fatalf("none was asked for: %v", runs)
		}
		if runs := off.Upcoming(off.Entries[i], State{}, now, 5); runs != nil {
			t.Fatalf("the schedule is switched off: %v", runs)
		}
	}

	if took := time.Since(began); took > time.Second {
		t.Errorf("that took %v", took)
	}
}

// refusals are entries that cannot be obeyed, and the key that is to blame.
var refusals = []struct {
	key   string
	entry *value.Map
	runs  bool // Salt runs it all the same, and obeys something else
}{
	{"untill", value.NewMap("seconds", int64(3), "untill", "2020-01-01"), true},
	{"", value.NewMap("args", []any{}), false},
	{"seconds", value.NewMap("seconds", "many"), false},
	{"seconds", value.NewMap("seconds", int64(-3)), true},
	{"", value.NewMap("seconds", int64(0)), true},
	{"cron", value.NewMap("cron", "* * *"), false},
	{"cron", value.NewMap("cron", "61 * * * *"), false},
	{"cron", value.NewMap("cron", "0 0 31 2 *"), false},
	{"cron", value.NewMap("cron", "h * * * *"), false},
	{"cron", value.NewMap("cron", int64(5)), false},
	{"when", value.NewMap("when", "whenever"), false},
	{"when", value.NewMap("when", int64(1020)), false},
	{"when", value.NewMap("when", "17:00+02:00"), false},
	{"when", value.NewMap("when", []any{}), false},
	{"once", value.NewMap("once", "17:00"), false},
	{"once", value.NewMap("once", "2026-02-30T00:00:00"), false},
	{"cron", value.NewMap("cron", "* * * * *", "when", "17:00"), false},
	{"cron", value.NewMap("seconds", int64(3), "cron", "* * * * *"), true},
	{"range", value.NewMap("seconds", int64(3), "range", "02:00-04:00"), false},
	{"range", value.NewMap("seconds", int64(3), "range", value.NewMap("start", "22:00", "end", "04:00")), false},
	{"range", value.NewMap("seconds", int64(3), "range", value.NewMap("start", "22:00")), false},
	{"skip_during_range",
		value.NewMap("seconds", int64(3), "skip_during_range", value.NewMap("start", "noon", "end", "13:00")),
		false},
	{"until", value.NewMap("seconds", int64(3), "until", "never"), false},
	{"after", value.NewMap("seconds", int64(3), "after", int64(20200101)), false},
	{"splay", value.NewMap("seconds", int64(3), "splay", "3"), false},
	{"splay", value.NewMap("seconds", int64(3), "splay", value.NewMap("start", int64(5), "end", int64(2))), false},
	{"enabled", value.NewMap("seconds", int64(3), "enabled", "False"), true},
	{"dry_run", value.NewMap("seconds", int64(3), "dry_run", "False"), false},
	{"maxrunning", value.NewMap("seconds", int64(3), "maxrunning", "2"), true},
	{"args", value.NewMap("seconds", int64(3), "args", "text"), true},
	{"kwargs", value.NewMap("seconds", int64(3), "kwargs", []any{}), true},
	{"returner", value.NewMap("seconds", int64(3), "returner", int64(3)), true},
}

// TestScheduleRefusals (F1, M4): what cannot be obeyed is named and does not run.
func TestScheduleRefusals(t *testing.T) {
	for i, c := range refusals {
		t.Run(fmt.Sprint(i, " ", c.key), func(t *testing.T) {
			c.entry.Set("function", "f.n")
			p, problems := Read(value.NewMap("good", value.NewMap("function", "f.n", "hours", int64(1)), "e", c.entry),
				nil)
			if len(p.Entries) != 1 || len(problems) == 0 {
				t.Fatalf("%d entries, problems %v", len(p.Entries), problems)
			}
			if got := problems[0]; got.Entry != "e" || got.Key != c.key || !got.Refused || got.Text == "" {
				t.Errorf("%+v, not of key %s", got, c.key)
			}
		})
	}
}

// refusalsOfSalt: of what is refused here Salt runs nothing after the start, or stops
// with its whole schedule, but where its own entry says that it obeys something else.
func refusalsOfSalt(t *testing.T, s *salt) {
	for i, c := range refusals {
		c.entry.Set("function", "f.n")
		sc := scenario{Schedule: value.NewMap("e", c.entry), Start: "2026-11-28T10:00:00", Tick: 1, Looks: 60, Lasts: 1}
		got := s.play(t, sc)
		if runs := len(got.Ran) > 1; runs != c.runs && got.Crash == "" {
			t.Errorf("%d %s: Salt runs it %d times", i, value.Repr(c.entry), len(got.Ran))
		}
	}
}

// TestScheduleWarnings: keys without effect are named.
func TestScheduleWarnings(t *testing.T) {
	limits := value.NewMap("function", "f.n", "seconds", 3.5, "until", "2027-01-01", "after", "2026-01-01",
		"maxrunning", int64(0))
	p, problems := Read(value.NewMap("e", limits, "skip_function", "f.skip"), nil)
	var keys []string
	for _, p := range problems {
		if p.Refused {
			t.Errorf("%+v", p)
		}
		keys = append(keys, p.Key)
	}

	slices.Sort(keys)
	if len(p.Entries) != 1 || strings.Join(keys, " ") != "maxrunning seconds until" {
		t.Errorf("%d entries, warnings of %v", len(p.Entries), keys)
	}
}

// TestBrokenSettings: nothing runs under settings of the whole that cannot be obeyed.
func TestBrokenSettings(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
	}{
		{"enabled", "no"},
		{"splay", "5"},
		{"skip_during_range", value.NewMap("start", "x", "end", "y")},
		{"skip_function", int64(1)},
	} {
		p, problems := Read(value.NewMap(c.key, c.value, "e", value.NewMap("function", "f.n", "seconds", int64(3))),
			nil)
		if len(p.Entries) != 0 || len(problems) != 1 || problems[0].Entry != "" || problems[0].Key != c.key ||
			!problems[0].Refused {
			t.Errorf("%s: %d entries, %+v", c.key, len(p.Entries), problems)
		}
	}
}

// TestNamedWhens: an entry may name moments of the pillar.
func TestNamedWhens(t *testing.T) {
	p, problems := Read(value.NewMap("e", value.NewMap("function", "f.n", "when", "tea time")),
		value.NewMap("tea time", "17:00"))
	now := time.Date(2026, 11, 28, 16, 0, 0, 0, time.UTC)
	if len(problems) > 0 || len(p.Upcoming(p.Entries[0], State{}, now, 1)) != 1 {
		t.Errorf("%v", problems)
	}
}

// FuzzSchedule reads what nobody has chosen, and looks ahead.
func FuzzSchedule(f *testing.F) {
	for _, l := range momentLayouts {
		f.Add(l, "*/5 2-4 * * mon#2", "%Y-%m-%d")
	}

	f.Add("17:00", "0 0 15w * ?", "%d%%%b")
	f.Fuzz(func(t *testing.T, when, cron, format string) {
		now := time.Date(2026, 11, 28, 16, 0, 0, 0, time.UTC)
		for _, e := range []*value.Map{
			value.NewMap("when", when),
			value.NewMap("cron", cron),
			value.NewMap("once", when, "once_fmt", format),
			value.NewMap("seconds", when, "until", when, "range", value.NewMap("start", when, "end", cron)),
		} {
			e.Set("function", "a.b")
			p, problems := Read(value.NewMap("e", e), nil)
			if (len(p.Entries) == 0) == (len(problems) == 0) {
				t.Fatalf("%d entries, %v", len(p.Entries), problems)
			}

			for _, e := range p.Entries {
				last := now
				for _, run := range p.Upcoming(e, State{}, now, 3) {
					if !run.At.After(last) {
						t.Fatalf("%v after %v", run.At, last)
					}
					last = run.At
				}
			}
		}
	})
}

// TestEntriesHaveKeysOfTheirOwn: the state of an entry is stored under its key, so no two entries
// may share one, whatever YAML makes of the keys in the file. Keys of text stay as they are.
func TestEntriesHaveKeysOfTheirOwn(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := []any{int64(1), "1", "1'", nil, "None", "<nil>", true, "True", "true", 1.5, "1.5", int64(-7), "-7", "x"}
	for range 200 {
		option := value.NewMap()
		for range 1 + random.IntN(8) {
			option.Set(some[random.IntN(len(some))], value.NewMap("function", "f.n", "seconds", int64(5)))
		}

		p, problems := Read(option, nil)
		keys := map[string]bool{}
		for _, e := range p.Entries {
			keys[e.Key] = true
		}
		for k := range option.All() {
			if text, ok := k.(string); ok && !keys[text] {
				t.Errorf("of %s there is no entry %q", value.Repr(option), text)
			}
		}
		if len(keys) != option.Len() || len(problems) > 0 {
			t.Fatalf("%d keys of %s: %v, problems %v", len(keys), value.Repr(option), keys, problems)
		}
	}
}
