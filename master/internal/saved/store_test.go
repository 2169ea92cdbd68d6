package saved

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/saltyaml"
	"saltern/master/value"
	"saltern/test/check"
)

// parse returns the map that a YAML text holds.
func parse(t *testing.T, text string) *value.Map {
	t.Helper()
	v, err := saltyaml.Decode([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	m, _ := v.(*value.Map)
	return m
}

// newTestStore returns a store in a file of its own, or in the given one.
func newTestStore(t *testing.T, path string) *Store {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "saved.saltern")
	}
	return NewStore(path, parse(t, "{fromconfig: web1}"), time.Now, slog.New(slog.DiscardHandler))
}

func (s *Store) mustSet(t *testing.T, kind Kind, name, settings string) {
	t.Helper()
	if err := s.set(t, kind, name, settings, nil); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) set(t *testing.T, kind Kind, name, settings string, seen *uint64) error {
	t.Helper()
	_, err := s.change(t.Context(), "alice", func(d *draft) error {
		return d.set(kind, name, parse(t, settings), seen)
	})
	return err
}

const (
	webTarget = "{expression: 'web*'}"
	webJob    = "{target: web, function: state.apply, args: ['{sls}'], fields: [{name: sls, pattern: '[a-z]+', default: top}]}"
	webTimes  = "{saved: deploy, kwargs: {sls: web}, cron: '0 3 * * *'}"
)

func fill(t *testing.T, s *Store) {
	t.Helper()
	s.mustSet(t, KindTarget, "web", webTarget)
	s.mustSet(t, KindJob, "deploy", webJob)
	s.mustSet(t, KindSchedule, "nightly", webTimes)
}

func TestObjectsAreOnAllMasters(t *testing.T) {
	a := newTestStore(t, "")
	fill(t, a)
	b := newTestStore(t, a.file.Path)
	b.Look(t.Context())
	for _, kind := range kinds() {
		for _, o := range a.Objects().All(kind) {
			other := b.Objects().Get(kind, o.Name)
			if other == nil || other.Fault != nil || !other.sameSettings(o.settings) || other.Revision != o.Revision ||
				other.By != "alice" || !other.Changed.Equal(o.Changed) {
				t.Errorf("%s %s: %+v there, %+v here", kind, o.Name, other, o)
			}
		}
	}
	if got := value.Str(b.Groups().Value("web")); got != "['(', 'web*', ')']" {
		t.Errorf("group web: %s", got)
	}
	if b.Groups().Str("fromconfig") != "web1" {
		t.Error("the groups of the configuration are lost")
	}
}

func TestRepeatChangesNothing(t *testing.T) {
	s := newTestStore(t, "")
	fill(t, s)
	before, err := os.ReadFile(s.file.Path)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s)
	if after, _ := os.ReadFile(s.file.Path); string(after) != string(before) {
		t.Errorf("the file has changed:\n%s", after)
	}
}

// TestTwoChangesAtOnce: of changes that have seen the same revision one is made, and the others are
// told so, on one master and on several.
func TestTwoChangesAtOnce(t *testing.T) {
	first := newTestStore(t, "")
	first.mustSet(t, KindTarget, "web", webTarget)
	stores := []*Store{first, newTestStore(t, first.file.Path), newTestStore(t, first.file.Path)}
	for round := range 10 {
		seen := first.Objects().Get(KindTarget, "web").Revision
		var made, told atomic.Int64
		var all sync.WaitGroup
		for i, s := range stores {
			for j := range 4 {
				all.Go(func() {
					err := s.set(t, KindTarget, "web", fmt.Sprintf("{expression: 'web-%d-%d-%d'}", round, i, j), &seen)
					switch wrong, ok := errors.AsType[invalid](err); {
					case err == nil:
						made.Add(1)
					case ok && strings.Contains(wrong.Error(), "was changed by alice"):
						told.Add(1)
					default:
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if made.Load() != 1 || told.Load() != 11 {
			t.Fatalf("round %d: %d made, %d told", round, made.Load(), told.Load())
		}
		first.Look(t.Context())
	}
}

// TestChangesOfOtherObjectsAreKept: masters change objects of their own at the same time.
func TestChangesOfOtherObjectsAreKept(t *testing.T) {
	first := newTestStore(t, "")
	stores := []*Store{first, newTestStore(t, first.file.Path), newTestStore(t, first.file.Path)}
	var all sync.WaitGroup
	for i, s := range stores {
		all.Go(func() {
			for j := range 10 {
				if err := s.set(t, KindTarget, fmt.Sprintf("t-%d-%d", i, j), webTarget, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	first.Look(t.Context())
	if n := len(first.Objects().All(KindTarget)); n != 30 {
		t.Errorf("%d targets of 30", n)
	}
}

// TestSetTwiceInARow: a change after another one needs no revision.
func TestSetTwiceInARow(t *testing.T) {
	a := newTestStore(t, "")
	b := newTestStore(t, a.file.Path)
	for i := range 5 {
		a.mustSet(t, KindTarget, "web", fmt.Sprintf("{expression: 'a%d*'}", i))
		b.mustSet(t, KindTarget, "web", fmt.Sprintf("{expression: 'b%d*'}", i))
	}
}

func TestWhatIsInUseStays(t *testing.T) {
	s := newTestStore(t, "")
	fill(t, s)
	s.mustSet(t, KindTarget, "all", "{expression: 'N@web or db*', type: compound}")
	for _, c := range []struct {
		name  string
		alter func(d *draft) error
		text  string
	}{
		{"the target of a job", func(d *draft) error { return d.remove(KindTarget, "web", nil) }, "in use by target all"},
		{"the job of a schedule", func(d *draft) error { return d.remove(KindJob, "deploy", nil) }, "in use by schedule nightly"},
		{"a field that a schedule fills in", func(d *draft) error {
			return d.set(KindJob, "deploy", parse(t, "{target: web, function: state.apply}"), nil)
		}, "no field"},
		{"a target that names itself", func(d *draft) error {
			return d.set(KindTarget, "web", parse(t, "{expression: N@all, type: compound}"), nil)
		}, "contains itself"},
		{"a target that is not there", func(d *draft) error {
			return d.set(KindJob, "x", parse(t, "{target: nothing, function: state.apply}"), nil)
		}, "no saved target nothing"},
		{"a nodegroup that is not there", func(d *draft) error {
			return d.set(KindTarget, "x", parse(t, "{expression: N@nothing, type: compound}"), nil)
		}, "no nodegroup"},
		{"a job that is not there", func(d *draft) error {
			return d.set(KindSchedule, "x", parse(t, "{saved: nothing, minutes: 5}"), nil)
		}, "no saved job nothing"},
		{"a field that is not filled in", func(d *draft) error {
			return d.set(KindSchedule, "x", parse(t, "{saved: deploy, kwargs: {sls: 'A B'}, minutes: 5}"), nil)
		}, "pattern"},
		{"what is not there", func(d *draft) error { return d.remove(KindTarget, "x", nil) }, "there is no saved target"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.change(t.Context(), "bob", c.alter)
			if _, ok := errors.AsType[invalid](err); !ok || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want one with %q", err, c.text)
			}
		})
	}
	if v := s.Objects().Version; v != 4 {
		t.Errorf("version %d after changes that were refused", v)
	}
}

// TestObjectsOfANewerRelease: what this master cannot read stays in the file when it changes another
// object, and is not used.
func TestObjectsOfANewerRelease(t *testing.T) {
	s := newTestStore(t, "")
	fill(t, s)
	newer := s.Objects()
	newer.Version++
	newer.byKind[KindJob]["future"] = &Object{
		Kind:     KindJob,
		Name:     "future",
		settings: parse(t, "{target: web, function: state.apply, color: blue}"),
	}
	content, err := newer.encode()
	if err == nil {
		err = s.file.Write(newer.Version-1, content)
	}
	if err != nil {
		t.Fatal(err)
	}

	old := newTestStore(t, s.file.Path)
	old.mustSet(t, KindTarget, "db", "{expression: 'db*'}")
	o := old.Objects().Get(KindJob, "future")
	if o == nil || o.Fault == nil || o.Job != nil {
		t.Fatalf("the job: %+v", o)
	}
	if text, _ := os.ReadFile(s.file.Path); !strings.Contains(string(text), "color: blue") {
		t.Errorf("it is lost:\n%s", text)
	}
}

// TestPartsOfANewerRelease: what a newer release writes beside the objects, in whatever form, outlives a
// change by this one.
func TestPartsOfANewerRelease(t *testing.T) {
	s := newTestStore(t, "")
	fill(t, s)
	newer := s.Objects()
	newer.Version++
	newer.unknown = parse(t, "{pauses: {a: [1, {b: c}]}, format: 2, 7: x, empty: null}")
	newer.odd = map[Kind]*value.Map{KindJob: parse(t, "{alias: deploy, 7: {a: b}, '': {c: d}}")}
	content, err := newer.encode()
	check.Must(t, err)
	check.Must(t, s.file.Write(newer.Version-1, content))

	old := newTestStore(t, s.file.Path)
	old.mustSet(t, KindTarget, "db", "{expression: 'db*'}")
	_, err = old.change(t.Context(), "bob", func(d *draft) error { return d.remove(KindSchedule, "nightly", nil) })
	check.Must(t, err)
	content, err = os.ReadFile(s.file.Path)
	check.Must(t, err)
	read, err := decode(content, 0)
	check.Must(t, err)
	if !value.Equal(read.unknown, newer.unknown) || !value.Equal(read.odd[KindJob], newer.odd[KindJob]) {
		t.Errorf("parts are lost:\n%s", content)
	}
}

// TestClocksOfMasters: which of two changes came first does not depend on the clocks of the masters.
func TestClocksOfMasters(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			a := newTestStore(t, "")
			b := newTestStore(t, a.file.Path)
			b.now = func() time.Time { return time.Now().Add(skew) }
			b.mustSet(t, KindTarget, "web", "{expression: 'b*'}")
			a.mustSet(t, KindTarget, "web", "{expression: 'a*'}") // afterwards

			// At once: b changes the object after somebody has asked a.
			var once sync.Once
			_, err := a.change(t.Context(), "alice", func(d *draft) error {
				once.Do(func() { b.mustSet(t, KindTarget, "web", "{expression: 'c*'}") })
				return d.set(KindTarget, "web", parse(t, "{expression: 'd*'}"), nil)
			})
			if _, refused := errors.AsType[invalid](err); !refused || !strings.Contains(err.Error(), "was changed by alice") {
				t.Errorf("the second change: %v", err)
			}
		})
	}
}

// TestTwoCallersOfOneMaster: whoever waits while this master changes the same object is refused.
func TestTwoCallersOfOneMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t, "")
		s.mustSet(t, KindTarget, "web", webTarget)
		goOn := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			_, err := s.change(t.Context(), "alice", func(d *draft) error {
				<-goOn
				return d.set(KindTarget, "web", parse(t, "{expression: 'a*'}"), nil)
			})
			check.Must(t, err)
		})
		synctest.Wait()
		both.Go(func() {
			err := s.set(t, KindTarget, "web", "{expression: 'b*'}", nil)
			if _, refused := errors.AsType[invalid](err); !refused {
				t.Errorf("the second: %v", err)
			}
		})
		synctest.Wait()
		close(goOn)
		both.Wait()
	})
}

// TestChangeThatOutlivesItsCaller: a change that ends after its caller has gone touches nothing of his.
// Only the race detector sees that, so nothing here may order the two.
func TestChangeThatOutlivesItsCaller(t *testing.T) {
	s := newTestStore(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.change(ctx, "alice", func(d *draft) error {
		cancel()
		return d.set(KindTarget, "web", parse(t, webTarget), nil)
	})
	if err != nil && !errors.Is(err, errSilent) {
		t.Errorf("error %v", err)
	}
	if s.mustSet(t, KindTarget, "db", webTarget); s.Objects().Get(KindTarget, "web") == nil {
		t.Error("the change was not made")
	}
}

// TestDamagedFile: the newest whole version counts, and the master that has the objects in memory
// keeps them meanwhile.
func TestDamagedFile(t *testing.T) {
	s := newTestStore(t, "")
	fill(t, s)
	content, err := os.ReadFile(s.file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file.Path, content[:len(content)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	s.Look(t.Context())
	if s.Objects().Get(KindSchedule, "nightly") == nil {
		t.Error("the objects are forgotten")
	}
	kept, err := filepath.Glob(s.file.Path + ".broken-*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("%q, %v", kept, err)
	}
	if err := s.Look(t.Context()); err == nil || !strings.Contains(err.Error(), kept[0]) {
		t.Errorf("the damaged file is not named: %v", err)
	}
	restarted := newTestStore(t, s.file.Path)
	if err := restarted.Look(t.Context()); err == nil || !strings.Contains(err.Error(), kept[0]) {
		t.Errorf("the damaged file is not named after a restart: %v", err)
	}
	second := kept[0] + "0"
	check.Must(t, os.WriteFile(second, nil, 0o600)) // another master set it aside
	if err := s.Look(t.Context()); err == nil || !strings.Contains(err.Error(), kept[0]+", "+second) {
		t.Errorf("two damaged files are not named: %v", err)
	}
	check.Must(t, os.Remove(kept[0]))
	if err := s.Look(t.Context()); err == nil || strings.Contains(err.Error(), kept[0]+",") || !strings.Contains(err.Error(), second) {
		t.Errorf("the second damaged file is not named: %v", err)
	}
	check.Must(t, os.Remove(second))
	check.Must(t, s.Look(t.Context()))
	check.Must(t, restarted.Look(t.Context()))
	other := newTestStore(t, s.file.Path)
	other.Look(t.Context())
	if other.Objects().Get(KindSchedule, "nightly") == nil {
		t.Error("the newest whole version is not read")
	}
	s.mustSet(t, KindTarget, "db", "{expression: 'db*'}")

	// No whole version is left on the disk: this master writes what it knows.
	older, err := filepath.Glob(filepath.Join(filepath.Dir(s.file.Path), ".saved.saltern.after-*"))
	check.Must(t, err)
	for _, path := range older {
		check.Must(t, os.Remove(path))
	}
	check.Must(t, os.WriteFile(s.file.Path, []byte("x"), 0o600))
	s.Look(t.Context())
	s.Look(t.Context())
	other = newTestStore(t, s.file.Path)
	if other.Newest(t.Context()).Get(KindTarget, "db") == nil || other.Objects().Get(KindSchedule, "nightly") == nil {
		t.Error("the objects of the memory are lost")
	}
}

// TestDiskThatHangs: callers of a file system that does not answer get an error, and the store ends.
func TestDiskThatHangs(t *testing.T) {
	s := newTestStore(t, "")
	s.disk <- struct{}{} // somebody waits for the file system
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.change(ctx, "alice", func(*draft) error { return nil }); !errors.Is(err, errSilent) {
		t.Errorf("change: %v", err)
	}
	s.Follow(ctx, func(err error) { t.Errorf("told when the master ends: %v", err) })
	if o := s.Newest(ctx); o == nil || o.Version != 0 {
		t.Errorf("newest: %+v", o)
	}
}

// TestFolderThatIsNotMounted: objects do not vanish with the mount, and none is saved below it.
func TestFolderThatIsNotMounted(t *testing.T) {
	s := newTestStore(t, "")
	fill(t, s)
	dir := filepath.Dir(s.file.Path)
	check.Must(t, os.Rename(dir, dir+".away"))
	check.Must(t, os.Mkdir(dir, 0o700))
	if s.Newest(t.Context()).Get(KindJob, "deploy") == nil {
		t.Error("the objects are forgotten")
	}
	if err := s.set(t, KindTarget, "db", webTarget, nil); !errors.Is(err, errGone) {
		t.Errorf("change: %v", err)
	}
	check.Must(t, os.Remove(dir))
	check.Must(t, os.Rename(dir+".away", dir))
	s.mustSet(t, KindTarget, "db", webTarget)
	if n := len(s.Objects().All(KindTarget)); n != 2 {
		t.Errorf("%d targets", n)
	}
}

// TestNewest: what was saved at another master a moment ago counts for who asks here.
func TestNewest(t *testing.T) {
	a := newTestStore(t, "")
	b := newTestStore(t, a.file.Path)
	fill(t, a)
	if b.Objects().Get(KindJob, "deploy") != nil || b.Newest(t.Context()).Get(KindJob, "deploy") == nil {
		t.Error("the other master does not know the job")
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"web", "Web-1.x_y", "a"} {
		if err := checkName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "1", "-a", "a b", "a/b", "../a", "a\n", "on", "null", "True", "a*", "ä", "a@b",
		"a,b", strings.Repeat("a", 65), "a'b", "<b>"} {
		if checkName(name) == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

func TestBadObjects(t *testing.T) {
	for _, c := range []struct {
		kind           Kind
		settings, text string
	}{
		{KindTarget, "{}", "expression"},
		{KindTarget, "{expression: 5}", "must be text"},
		{KindTarget, "{expression: 'a b'}", "blank"},
		{KindTarget, "{expression: \"a\\nb\", type: compound}", "not printed"},
		{KindTarget, "{expression: a, type: range}", "no type"},
		{KindTarget, "{expression: 'G@os:x'}", "say the type"},
		{KindTarget, "{expression: 'a and', type: compound}", "cannot be read"},
		{KindTarget, "{expression: '[', type: pcre}", "cannot be read"},
		{KindTarget, "{expression: 'a ) or ( b', type: compound}", "cannot be read"},
		{KindTarget, "{expression: ') or ( *', type: compound}", "cannot be read"},
		{KindJob, "{target: 'a ) or ( b', target_type: compound, function: state.apply}", "cannot be read"},
		{KindTarget, "{expression: a, colour: red}", "no setting"},
		{KindJob, "{function: state.apply}", "target is missing"},
		{KindJob, "{target: 'web*', function: state.apply}", "needs target_type"},
		{KindJob, "{target: '*', target_type: glob, function: state}", "no function"},
		{KindJob, "{target: '*', target_type: glob, function: [state.apply]}", "must be text"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: ['{x}']}", "no field of that name"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, fields: [{name: x}]}", "no argument has the field"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: ['a=b']}", "under kwargs"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: [{__kwarg__: true}]}", "__kwarg__"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, kwargs: {__pub_user: x}}", "leave it out"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, test_first: true}", "test_first needs"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, batch: 0}", "batch is"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, batch: '0%'}", "batch is"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, batch: -1}", "batch is"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, stop_above: 5}", "need batch"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, batch: 1, stop_above: 100}", "0 to 99"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, batch: 1, stop_above: .nan}", "number"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, batch: 1, timeout: 0}", "timeout"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, batch: 1, timeout: .inf}", "timeout"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, may_run: [alice]}", "must be a map"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, may_run: {pam: alice}}", "may_run maps"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, may_run: {pam: ['%']}}", "neither a user"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: ['{test}'], fields: [{name: test}]}", "argument of that name"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: ['{x}'], fields: [{name: x, pattern: '('}]}", "no regular"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: ['{x}'], fields: [{name: x, pattern: ')|(.*'}]}", "no regular"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: ['{x}'], fields: [{name: x, pattern: a, default: b}]}", "default"},
		{KindJob, "{target: '*', target_type: glob, function: cmd.run, args: ['{x}'], fields: [{name: x, kind: choice}]}", "has choices"},
		{KindSchedule, "{saved: deploy}", "time"},
		{KindSchedule, "{saved: deploy, function: test.arg, minutes: 1}", "saved job"},
		{KindSchedule, "{function: test.arg, minutes: 1, saltenv: x}", "no such key"},
		{KindSchedule, "{function: test.arg, minutes: 1, name: y}", "one name"},
		{KindSchedule, "{function: test.arg, cron: '99 * * * *'}", "cron"},
	} {
		t.Run(c.settings, func(t *testing.T) {
			s := newTestStore(t, "")
			fill(t, s)
			err := s.set(t, c.kind, "x", c.settings, nil)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want one with %q", err, c.text)
			}
		})
	}
	s := newTestStore(t, "")
	for _, name := range []string{"enabled", "splay", "skip_function", "skip_during_range"} {
		if s.set(t, KindSchedule, name, "{function: test.arg, minutes: 1}", nil) == nil {
			t.Errorf("a schedule is called %s", name)
		}
	}
}

func TestBounds(t *testing.T) {
	s := newTestStore(t, "")
	big := fmt.Sprintf("{expression: %s}", strings.Repeat("a", maxExpression+1))
	if err := s.set(t, KindTarget, "x", big, nil); err == nil {
		t.Error("a target without bound is saved")
	}
	whole := value.NewMap("targets", value.NewMap())
	for i := range maxObjects + 1 {
		whole.Map("targets").Set(fmt.Sprintf("t%d", i), parse(t, webTarget))
	}
	_, err := s.change(t.Context(), "alice", func(d *draft) error { return d.setAll(whole, false) })
	if err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("too many objects: %v", err)
	}
	deep := value.NewMap("a", "x")
	for range 30 {
		deep = value.NewMap("a", deep)
	}
	_, err = s.change(t.Context(), "alice", func(d *draft) error {
		return d.set(KindJob, "x", value.NewMap("target", "*", "target_type", "glob", "function", "test.arg", "kwargs", deep), nil)
	})
	if err == nil {
		t.Error("lists without bound are saved")
	}
}
