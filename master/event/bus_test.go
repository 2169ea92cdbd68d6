package event

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/value"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

func newBus() *Bus { return NewBus(func() time.Time { return noon }, 0) }

func data(kv ...any) *value.Map { return value.NewMap(kv...) }

func TestStamp(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want string
	}{
		{noon, "2026-11-21T12:00:00.123456+00:00"},
		{noon.Truncate(time.Second), "2026-11-21T12:00:00+00:00"},
		{noon.Truncate(time.Second).Add(999), "2026-11-21T12:00:00+00:00"},
		{noon.In(time.FixedZone("x", 3600)), "2026-11-21T12:00:00.123456+00:00"},
	} {
		if got := Stamp(c.t); got != c.want {
			t.Errorf("Stamp(%v) = %s, want %s", c.t, got, c.want)
		}
	}
}

func TestFireStamps(t *testing.T) {
	b := newBus()
	s := b.Subscribe("t", 4, nil)
	d := data("a", 1, "_stamp", "old", "z", 2)
	if err := b.Fire("x", d); err != nil {
		t.Fatal(err)
	}

	if err := b.Relay(Event{Tag: "x", Data: d, Origin: Peer}); err != nil {
		t.Fatal(err)
	}

	if err := b.Relay(Event{Tag: "x", Data: data(), Origin: Peer}); err != nil {
		t.Fatal(err)
	}

	if e := <-s.C; e.Data.Str("_stamp") != Stamp(noon) || strings.Join(e.Data.Keys(), " ") != "a _stamp z" ||
		e.Origin != Internal {
		t.Errorf("fired: %v", e.Data.Keys())
	}

	if e := <-s.C; e.Data.Str("_stamp") != "old" || e.Origin != Peer {
		t.Errorf("relayed: %v", e)
	}

	if e := <-s.C; e.Data.Str("_stamp") != Stamp(noon) {
		t.Errorf("relayed without stamp: %v", e)
	}

	if d.Str("_stamp") != "old" {
		t.Error("the caller's map was changed")
	}
}

func TestTags(t *testing.T) {
	b := newBus()
	for _, tag := range []string{"", "a\n\nb", "a\n", "\xff", strings.Repeat("x", maxTag+1)} {
		if err := b.Fire(tag, data()); !errors.Is(err, errTag) {
			t.Errorf("%.20q: %v", tag, err)
		}
	}

	for _, tag := range []string{"a", "a\nb", "ü", strings.Repeat("x", maxTag)} {
		if err := b.Fire(tag, data()); err != nil {
			t.Errorf("%.20q: %v", tag, err)
		}
	}

	if got := Tag("job", "1", "", "ret", "m"); got != "salt/job/1/ret/m" {
		t.Error(got)
	}
}

func TestSlowSubscriberIsTold(t *testing.T) {
	b := newBus()
	slow := b.Subscribe("slow", 2, Prefix("job/"))
	quick := b.Subscribe("quick", 20, nil)
	for i := range 10 {
		b.Fire(fmt.Sprintf("job/%d", i), data())
		b.Fire("other", data())
	}

	if slow.Dropped() != 8 || quick.Dropped() != 0 || b.Stats().Lost != 8 {
		t.Fatalf("dropped %d and %d, bus %+v", slow.Dropped(), quick.Dropped(), b.Stats())
	}

	for _, want := range []string{"job/0", "job/1"} {
		if e := <-slow.C; e.Tag != want || e.Lost != 0 {
			t.Fatalf("%+v", e)
		}
	}

	b.Fire("job/last", data())
	b.Fire("job/more", data())
	if e := <-slow.C; e.Tag != "job/last" || e.Lost != 8 {
		t.Fatalf("%+v", e)
	}

	if e := <-slow.C; e.Lost != 0 {
		t.Fatalf("%+v", e)
	}
}

func TestOneOrderForAll(t *testing.T) {
	b := newBus()
	const senders, each = 8, 200
	one, two := b.Subscribe("1", senders*each, nil), b.Subscribe("2", senders*each, nil)
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for j := range each {
				b.Fire(fmt.Sprintf("%d/%d", i, j), data())
			}
		})
	}

	wg.Wait()
	b.Close()
	n := 0
	for e := range one.C {
		if f := <-two.C; f.Tag != e.Tag {
			t.Fatalf("%s and %s", e.Tag, f.Tag)
		}
		n++
	}

	if n != senders*each {
		t.Fatalf("%d events", n)
	}
}

func TestCloseWhileFiring(t *testing.T) {
	b := newBus()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				s := b.Subscribe("s", 1, nil)
				b.Fire("x", data())
				s.Close()
				s.Close()
			}
		})
	}

	wg.Wait()
	b.Close()
	b.Close()
	late := b.Subscribe("late", 1, nil)
	if _, ok := <-late.C; ok {
		t.Error("an event from a closed bus")
	}

	late.Close()
	if err := b.Fire("x", data()); err != nil {
		t.Error(err)
	}
}

func TestTrim(t *testing.T) {
	big := strings.Repeat("x", 5000)
	wide, wider := data("id", "m1", "jid", "1"), data("id", "m1", "jid", "1")
	for i := range 3000 {
		wide.Set(fmt.Sprint(i), "small")
	}

	for i := range 30000 {
		wider.Set(fmt.Sprint(i), "small")
	}

	// A highstate return with many states, none of them large (salt/utils/dicttrim.py does not
	// change a return of this size).
	states := data("id", "m", "started", "23:42:55.096750")
	for i := range 20 {
		states.Set(fmt.Sprint(i), data("comment", strings.Repeat("c", 130), "started", "23:42:55"))
	}

	for _, c := range []struct {
		name string
		in   *value.Map
		keep []string
		gone []string
		most int
	}{
		{"small", data("a", "b"), []string{"a"}, nil, 2000},
		{"one big", data("id", "m", "return", big), []string{"id"}, []string{"return"}, 2000},
		{"big list", data("id", "m", "return", []any{big, big}), []string{"id"}, nil, 2000 * overflow},
		{"bigger list", data("id", "m", "return", []any{big, big, big, big, big, big, big}), []string{"id"},
			[]string{"return"}, 2000},
		{"nested", data("id", "m", "return", data("x", big, "y", 1)), []string{"id"}, nil, 2000},
		{"states", states, []string{"id", "started"}, nil, 2 * 2000},
		{"wide", wide, []string{"id", "jid", "0", "2999"}, nil, 2000 * overflow},
		{"wider", wider, []string{"id", "jid"}, []string{"data"}, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBus(func() time.Time { return noon }, 2000)
			s := b.Subscribe("s", 1, nil)
			b.Fire("tag", c.in)
			e := <-s.C
			if e.Data.Len() != c.in.Len()+1 {
				t.Error("subscribers in the process must get it whole")
			}

			body, err := e.Body()
			if err != nil {
				t.Fatal(err)
			}

			if c.name == "states" && strings.Contains(string(body), trimmed) {
				t.Error("small values were trimmed")
			}

			if len(body) > c.most+len("tag\n\n") {
				t.Fatalf("%d bytes", len(body))
			}

			got, err := ParseBody(body)
			if err != nil {
				t.Fatal(err)
			}

			for _, k := range c.keep {
				if got.Data.Str(k) != c.in.Str(k) {
					t.Errorf("%s is %q", k, got.Data.Str(k))
				}
			}

			for _, k := range c.gone {
				if got.Data.Str(k) != trimmed {
					t.Errorf("%s was not trimmed", k)
				}
			}
		})
	}
}

func TestStateErrors(t *testing.T) {
	failed := func() *value.Map { return data("result", false, "comment", "no") }
	states := data(
		"file_|-a_|-a_|-managed", failed(),
		"pkg_|-b_|-b_|-installed", data("result", true),
		"salt/key_|-c_|-c_|-x", failed(), // Attack 5: a tag chosen by the minion
		"cmd_|-d_|-d_|-run", data("result", nil),
	)

	ret := func(kv ...any) *value.Map {
		return data(append([]any{"jid", "20261121080455885058", "id", "m1", "user", "root"}, kv...)...)
	}
	const sub = "salt/job/20261121080455885058/sub/m1/error/"
	for _, c := range []struct {
		name string
		load *value.Map
		want []string
	}{
		{"failed run", ret("fun", "state.sls", "retcode", int64(2), "return", states),
			[]string{"file.managed", sub + "state.sls", sub + "state.sls"}},
		{"good run", ret("fun", "state.sls", "retcode", int64(0), "return", states), nil},
		{"other function", ret("fun", "state.apply", "retcode", int64(2), "return", states), nil},
		{"errors as list", ret("fun", "state.sls", "retcode", int64(1), "return", []any{"no such sls"}), nil},
		{"compound, ordered",
			ret("fun", []any{"test.ping", "state.highstate"}, "retcode", []any{int64(0), int64(2)}, "return",
				[]any{true, states}),
			[]string{"file.managed", sub + "state.highstate", sub + "state.highstate"}},
		{"compound, by name",
			ret("fun", []any{"test.ping", "state.highstate"}, "retcode", data("state.highstate", int64(2)),
				"return", data("state.highstate", states)),
			[]string{"file.managed", sub + "state.highstate", sub + "state.highstate"}},
		{"compound, short", ret("fun", []any{"state.sls", int64(3)}, "retcode", []any{}, "return", nil), nil},
		{"empty", data(), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBus()
			s := b.Subscribe("s", 100, nil)
			b.FireStateErrors(c.load)
			b.Close()
			var got []string
			for e := range s.C {
				got = append(got, e.Tag)
				if strings.HasPrefix(e.Tag, sub) &&
					(e.Data.Str("id") != "m1" || e.Data.Bool("success") ||
						!strings.HasPrefix(e.Data.Str("return"), "Error: ")) {
					t.Errorf("data %v", plain(e.Data))
				}
			}

			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func BenchmarkFire(b *testing.B) {
	bus := newBus()
	s := bus.Subscribe("s", 1, nil)
	defer s.Close()
	d := data("cmd", "_return", "id", "m1", "success", true, "return", true, "retcode", 0, "jid",
		"20261121080455885058", "fun", "test.ping")
	b.ReportAllocs()
	for b.Loop() {
		bus.Fire("salt/job/20261121080455885058/ret/m1", d)
	}
}
