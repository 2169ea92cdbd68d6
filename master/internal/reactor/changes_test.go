package reactor

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/logged"
)

// fleet is some masters of a cluster whose messages about rules come late, in any order, or never.
type fleet struct {
	t       *testing.T
	random  *rand.Rand
	masters []*Rules
	waiting []letter
	clock   time.Time
}

// letter is a message to a master.
type letter struct {
	to   int
	data *value.Map
}

// option is the option reactor of the masters: a tag twice, and a pattern.
var option = []any{
	value.NewMap("a", "/1.sls"),
	value.NewMap("b", []any{"/2.sls", "/3.sls"}),
	value.NewMap("a", "/4.sls"),
	value.NewMap("c/*", "/5.sls"),
}

func newFleet(t *testing.T, random *rand.Rand, masters int) *fleet {
	f := &fleet{t: t, random: random, clock: time.Unix(1e9, 0)}
	for n := range masters {
		f.masters = append(f.masters, nil)
		f.start(n)
	}
	return f
}

// start starts a master, whose clock is wrong by up to a minute.
func (f *fleet) start(n int) {
	skew := time.Duration(f.random.Int64N(int64(2*time.Minute))) - time.Minute
	f.masters[n] = NewRules(RulesConfig{
		Entries: option,
		ID:      fmt.Sprint("10.0.0.", n),
		Now:     func() time.Time { return f.clock.Add(skew) },
		Log:     slog.New(slog.DiscardHandler),
		Tell: func(changes *value.Map) {
			for to := range f.masters {
				if to != n {
					f.waiting = append(f.waiting, letter{to, f.wired(changes)})
				}
			}
		},
	})
}

// wired returns a message as the receiver reads it.
func (f *fleet) wired(data *value.Map) *value.Map {
	f.t.Helper()
	packed, err := msgpack.Marshal(data, msgpack.Raw)
	if err != nil {
		f.t.Fatal(err)
	}
	read, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	if err != nil {
		f.t.Fatal(err)
	}
	return read.(*value.Map)
}

// deliver gives a message that waits to its master.
func (f *fleet) deliver() {
	n := f.random.IntN(len(f.waiting))
	next := f.waiting[n]
	f.waiting = slices.Delete(f.waiting, n, n+1)
	f.masters[next.to].Obey(next.data)
}

// alter adds or deletes a random rule on a random master.
func (f *fleet) alter() *value.Map {
	master := f.masters[f.random.IntN(len(f.masters))]
	tag := []string{"a", "b", "c/*", "d", "e"}[f.random.IntN(5)]
	f.clock = f.clock.Add(time.Duration(f.random.IntN(3)) * time.Second)
	if f.random.IntN(2) == 0 {
		return master.Delete(tag)
	}
	return master.Add(tag, []any{fmt.Sprintf("/%d.sls", f.random.IntN(100))})
}

// TestRulesOfTwoMastersAtOnce: the masters of a cluster add and delete rules at the same time.
// Their clocks are wrong, messages arrive in any order or are lost, and masters restart. Once all
// messages of the last change have arrived, all masters have the same rules in the same order.
func TestRulesOfTwoMastersAtOnce(t *testing.T) {
	for run := range 500 {
		f := newFleet(t, rand.New(rand.NewPCG(43, uint64(run))), 2+run%3)
		for range 40 {
			switch n := f.random.IntN(20); {
			case n < 8:
				f.alter()
			case n < 18 && len(f.waiting) > 0:
				f.deliver()
			case n == 18 && len(f.waiting) > 0:
				f.waiting = f.waiting[1:] // lost
			case n == 19 && run%2 == 0:
				f.start(f.random.IntN(len(f.masters)))
			}
		}

		for !f.alter().Bool("status") {
		}
		for messages := 0; len(f.waiting) > 0; messages++ {
			if messages > 1000 {
				t.Fatalf("run %d: the masters do not come to an end", run)
			}
			f.deliver()
		}

		want := value.Repr(f.masters[0].All())
		for n, master := range f.masters {
			if got := value.Repr(master.All()); got != want {
				t.Fatalf("run %d: master %d has %s, the first %s", run, n, got, want)
			}
		}
	}
}

// TestRulesChangeAsSalts: one master's answers and rules are those of Salt's reactor, which keeps
// one list (salt/utils/reactor.py add_reactor, delete_reactor).
func TestRulesChangeAsSalts(t *testing.T) {
	for run := range 500 {
		f := newFleet(t, rand.New(rand.NewPCG(44, uint64(run))), 1)
		parsed, _ := Parse(option)
		list := parsed.All()
		index := func(tag string) int {
			return slices.IndexFunc(list, func(e any) bool { _, has := e.(*value.Map).Get(tag); return has })
		}

		for range 30 {
			tag := []string{"a", "b", "c/*", "d", "e"}[f.random.IntN(5)]
			at := index(tag)
			var want, got *value.Map
			if f.random.IntN(2) == 0 {
				want = outcome(false, "Reactor does not exists.")
				if at >= 0 {
					list = slices.Delete(list, at, at+1)
					want = outcome(true, "Reactor deleted.")
				}
				got = f.masters[0].Delete(tag)
			} else {
				want = outcome(false, "Reactor already exists.")
				if at < 0 {
					list = append(list, value.NewMap(tag, []any{"/x.sls"}))
					want = outcome(true, "Reactor added.")
				}
				got = f.masters[0].Add(tag, "/x.sls")
			}

			if value.Repr(got) != value.Repr(want) || value.Repr(f.masters[0].All()) != value.Repr(list) {
				t.Fatalf("run %d, %s: %v, want %v; rules %v, want %v", run, tag, got, want, f.masters[0].All(), list)
			}
		}
	}
}

// TestRulesOfHostileMessages: a message that is no list of changes, or is too long, changes
// nothing.
func TestRulesOfHostileMessages(t *testing.T) {
	r := NewRules(RulesConfig{Entries: option, ID: "m", Log: slog.New(slog.DiscardHandler)})
	before := value.Repr(r.All())
	good := func() *value.Map {
		return value.NewMap(tagField, "x", removedField, int64(0), filesField, []any{"/x.sls"}, timeField, int64(1), masterField, "n")
	}
	with := func(name string, v any) *value.Map {
		entry := good()
		entry.Set(name, v)
		return value.NewMap(changesField, []any{entry})
	}

	many := make([]any, maxMerged*maxChanges+1)
	for n := range many {
		many[n] = good()
	}

	for name, data := range map[string]*value.Map{
		"nothing":        value.NewMap(),
		"text":           value.NewMap(changesField, "x"),
		"texts":          value.NewMap(changesField, []any{"x"}),
		"no tag":         with(tagField, ""),
		"tag no text":    with(tagField, int64(1)),
		"negative":       with(removedField, int64(-1)),
		"large":          with(removedField, int64(1)<<62),
		"files of ints":  with(filesField, []any{int64(1)}),
		"files a map":    with(filesField, value.NewMap()),
		"last of stamps": with(timeField, int64(1)<<62+1),
		"time no int":    with(timeField, "1"),
		"large text":     with(filesField, []any{strings.Repeat("x", maxMerged*maxChangesBytes+1)}),
		"many":           value.NewMap(changesField, many),
	} {
		if r.Obey(data); value.Repr(r.All()) != before {
			t.Errorf("%s: the rules are %v", name, r.All())
		}
	}

	if r.Obey(value.NewMap(changesField, []any{good()})); len(r.Files("x")) != 1 {
		t.Errorf("the rules are %v", r.All())
	}
}

// TestTooManyChanges: changes that could not be told to the other masters are refused.
func TestTooManyChanges(t *testing.T) {
	r := NewRules(RulesConfig{ID: "m", Log: slog.New(slog.DiscardHandler)})
	for n := range maxChanges {
		if got := r.Add(fmt.Sprint("tag", n), "/x.sls"); !got.Bool("status") {
			t.Fatalf("rule %d: %v", n, got)
		}
	}

	if got := r.Add("one more", "/x.sls"); got.Bool("status") || !strings.Contains(got.Str("comment"), "Too many") {
		t.Errorf("one more: %v", got)
	}
	if got := r.Delete("tag7"); !got.Bool("status") {
		t.Errorf("a rule that was added before: %v", got)
	}
}

// TestRulesFileOfAnyKind: a rules file that is no regular file of text, or is too large, is logged
// once and blocks nothing.
func TestRulesFileOfAnyKind(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // sparse
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}

	for name, path := range map[string]string{
		"pipe": pipe, "folder": dir, "device": "/dev/zero", "large": large, "link to a pipe": link,
	} {
		t.Run(name, func(t *testing.T) {
			var log logged.Buffer
			read := make(chan *Rules, 1)
			go func() {
				r := NewRules(RulesConfig{File: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
				r.adoptText(readFile(path))
				read <- r
			}()

			select {
			case r := <-read:
				if len(r.All()) != 0 || strings.Count(log.String(), "rules of the reactor cannot be read") != 1 {
					t.Errorf("rules %v, log\n%s", r.All(), &log)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the master waits for the file")
			}
		})
	}
}
