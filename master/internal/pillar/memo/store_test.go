package memo

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/value"
)

func minion(kv ...any) Minion { return Minion{Grains: value.NewMap(kv...), Pillar: value.NewMap()} }

func noFiles(string) (Sum, bool, error) { return Sum{}, false, nil }

func key(t testing.TB, parts ...any) Sum {
	t.Helper()
	k, err := KeyOf(parts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func grain(path ...string) Read { return Read{Path: path} }

// TestReadsDecide shows for which minions a result is given that was made for
// one, whose template read some paths.
func TestReadsDecide(t *testing.T) {
	deep := value.NewMap("b", value.NewMap("c", int64(1)), "x", "other")
	for _, c := range []struct {
		name     string
		reads    []Read
		from, to Minion
		want     bool
	}{
		{"nothing is read", nil, minion("id", "a"), minion("id", "b"), true},
		{"the same value", []Read{grain("os")}, minion("os", "x", "id", "a"), minion("id", "b", "os", "x"), true},
		{"another value", []Read{grain("os")}, minion("os", "x"), minion("os", "y"), false},
		{"another type", []Read{grain("n")}, minion("n", int64(1)), minion("n", 1.0), false},
		{"text or bytes", []Read{grain("n")}, minion("n", "a"), minion("n", []byte("a")), false},
		{"true or 1", []Read{grain("n")}, minion("n", true), minion("n", int64(1)), false},
		{"null or nothing", []Read{grain("n")}, minion("n", nil), minion(), false},
		{"nothing in both", []Read{grain("n")}, minion("a", 1), minion("b", 1), true},
		{"nothing at another depth", []Read{grain("a", "b")}, minion("a", value.NewMap()), minion(), false},
		{"a text on the way", []Read{grain("a", "b")}, minion("a", "b"), minion("a", value.NewMap("b", "b")), false},
		{"a list on the way", []Read{grain("a", "0")}, minion("a", []any{"x", "y"}),
			minion("a", []any{"x", "z"}), false},
		{"a path beside others", []Read{grain("a", "b", "c")}, minion("a", deep),
			minion("a", value.NewMap("x", "more", "b", value.NewMap("c", int64(1)))), true},
		{"the whole below a path", []Read{grain("a", "b")}, minion("a", deep),
			minion("a", value.NewMap("b", value.NewMap("c", int64(1), "d", 1))), false},
		{"another order", []Read{grain("a")}, minion("a", value.NewMap("x", 1, "y", 2)),
			minion("a", value.NewMap("y", 2, "x", 1)), false},
		{"values that meet", []Read{grain("a"), grain("b")}, minion("a", "x", "b", "yz"),
			minion("a", "xy", "b", "z"), false},
		{"values that change places", []Read{grain("a"), grain("b")}, minion("a", "x", "b", "y"),
			minion("a", "y", "b", "x"), false},
		{"the pillar", []Read{{Pillar: true, Path: []string{"a"}}}, Minion{Pillar: value.NewMap("a", 1)},
			Minion{Pillar: value.NewMap("a", 2)}, false},
		{"a pillar is no grain", []Read{{Pillar: true, Path: []string{"a"}}},
			Minion{Pillar: value.NewMap("a", 1)}, minion("a", 1), false},
		{"a dotted key", []Read{grain("a.b")}, minion("a.b", 1), minion("a", value.NewMap("b", 1)), false},
	} {
		s := New(Config{})
		k := key(t, c.name)
		s.Put(k, c.from, Trace{Reads: c.reads}, "result")
		if v, ok := s.Get(k, c.from, noFiles); !ok || v != "result" {
			t.Errorf("%s: not even for the same: %v %v", c.name, v, ok)
		}

		if _, ok := s.Get(k, c.to, noFiles); ok != c.want {
			t.Errorf("%s: %v", c.name, ok)
		}

		if _, ok := s.Get(key(t, "another"), c.from, noFiles); ok {
			t.Errorf("%s: for another template", c.name)
		}
	}
}

func TestKeyOfTellsTypesApart(t *testing.T) {
	seen := map[Sum]string{}
	for _, parts := range [][]any{
		{"a", "b"},
		{"ab"},
		{"a", nil, "b"},
		{"a", []any{"b"}},
		{int64(1)},
		{1.0},
		{"1"},
		{true},
		{value.NewMap("a", "b")},
		{value.NewMap()},
		{},
		{nil},
	} {
		k := key(t, parts...)
		if other, twice := seen[k]; twice {
			t.Errorf("%v is %s", parts, other)
		}
		seen[k] = fmt.Sprint(parts)
	}
}

func TestFilesDecide(t *testing.T) {
	at := map[string]Sum{"/a": {1}}
	content := func(path string) (Sum, bool, error) {
		if path == "/broken" {
			return Sum{}, false, fmt.Errorf("broken")
		}
		sum, there := at[path]
		return sum, there, nil
	}

	k := key(t, "x")
	for _, c := range []struct {
		name  string
		files []File
		want  bool
	}{
		{"the same", []File{{Path: "/a", Sum: Sum{1}}, {Path: "/b", Missing: true}}, true},
		{"another content", []File{{Path: "/a", Sum: Sum{2}}}, false},
		{"it is gone", []File{{Path: "/b", Sum: Sum{2}}}, false},
		{"it came", []File{{Path: "/a", Missing: true}}, false},
		{"not to be read", []File{{Path: "/broken", Missing: true}}, false},
	} {
		s := New(Config{})
		s.Put(k, minion(), Trace{Files: c.files}, "result")
		if _, ok := s.Get(k, minion(), content); ok != c.want {
			t.Errorf("%s: %v", c.name, ok)
		}

		if st := s.Stats(); (st.Results == 1) != c.want || (st.Bytes > 0) != c.want {
			t.Errorf("%s: %+v", c.name, st)
		}
	}
}

// TestLeastRecentlyUsedMakesRoom has a template of many values: results stay below
// both bounds, and what is used stays.
func TestLeastRecentlyUsedMakesRoom(t *testing.T) {
	s := New(Config{Results: 10})
	k := key(t, "x")
	trace := Trace{Reads: []Read{grain("id")}}
	for i := range 100 {
		s.Put(k, minion("id", i), trace, i)
		if _, ok := s.Get(k, minion("id", 0), noFiles); !ok {
			t.Fatalf("what is used was dropped after %d", i)
		}
	}

	if st := s.Stats(); st.Results != 10 || st.Dropped != 90 || st.Misses != 100 || st.Hits != 100 {
		t.Errorf("%+v", st)
	}

	if _, ok := s.Get(k, minion("id", 5), noFiles); ok {
		t.Error("what was not used is there")
	}

	// A value that takes an eighth of all is not kept.
	small := New(Config{Bytes: 1 << 16})
	small.Put(k, minion(), Trace{}, strings.Repeat("x", 1<<14))
	if st := small.Stats(); st.Results != 0 || st.Bytes != 0 {
		t.Errorf("%+v", st)
	}
}

// TestFormsAreBounded has a template that reads other paths each time.
func TestFormsAreBounded(t *testing.T) {
	s := New(Config{})
	k := key(t, "x")
	for i := range 100 {
		name := fmt.Sprint("g", i)
		s.Put(k, minion(name, 1), Trace{Reads: []Read{grain("which"), grain(name)}}, i)
	}
	if st := s.Stats(); st.Results != maxReadSets || len(s.templates[k].readSets) != maxReadSets {
		t.Errorf("%+v, %d forms", st, len(s.templates[k].readSets))
	}
}

func TestAloneIsAskedAgain(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := New(Config{Now: func() time.Time { return now }})
	k := key(t, "x")
	s.PutAlone(k)
	s.PutAlone(k)
	if !s.Alone(k) || s.Alone(key(t, "y")) {
		t.Error("it is forgotten, or known of another")
	}
	now = now.Add(askAgain)
	if s.Alone(k) || s.Stats().Results != 0 || s.Stats().Bytes != 0 || len(s.templates) != 0 {
		t.Errorf("it is kept: %+v", s.Stats())
	}
}

// TestMemoryBound fills a small store with values of several kinds and compares
// what the process takes with the bound.
func TestMemoryBound(t *testing.T) {
	const bound = 8 << 20
	var before, after runtime.MemStats
	s := New(Config{Bytes: bound})
	runtime.GC()
	runtime.ReadMemStats(&before)

	for i := range 40000 {
		v := value.NewMap("name", fmt.Sprint("value ", i), "list", []any{int64(i), "x", 1.5}, "deep",
			value.NewMap("k", fmt.Sprint(i), "l", value.NewMap()))
		if i%10 == 0 {
			for j := range 30 {
				v.Set(fmt.Sprint("key", j), strings.Repeat("x", j))
			}
		}

		s.Put(key(t, i%100), minion("id", i, "os", "x"),
			Trace{Reads: []Read{grain("id"), grain("os")}, Files: []File{{Path: fmt.Sprint("/srv/pillar/", i%100)}}},
			v)
	}

	runtime.GC()
	runtime.ReadMemStats(&after)
	st := s.Stats()
	took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d results, %d KiB by estimate, %d KiB in fact, %d dropped", st.Results, st.Bytes>>10, took>>10, st.Dropped)

	if st.Bytes > bound || took > bound*11/10 || st.Dropped == 0 || took < bound/4 {
		t.Errorf("%+v, %d bytes in fact", st, took)
	}

	runtime.KeepAlive(s)
}

func TestConcurrentUse(t *testing.T) {
	s := New(Config{Results: 50})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 500 {
				k, m := key(t, i%7), minion("id", (i*w)%40)
				if v, ok := s.Get(k, m, noFiles); ok && v != m.Grains.Value("id") {
					t.Errorf("%v instead of %v", v, m.Grains.Value("id"))
				}

				s.Put(k, m, Trace{Reads: []Read{grain("id")}}, m.Grains.Value("id"))
				if i%50 == 0 {
					s.PutAlone(k)
				}

				s.Alone(k)
			}
		})
	}

	wg.Wait()
	if st := s.Stats(); st.Results > 50 {
		t.Errorf("%+v", st)
	}
}

// FuzzReadTrace gives what a renderer may answer.
func FuzzReadTrace(f *testing.F) {
	f.Add("grains", "os", []byte(strings.Repeat("s", 32)), true)
	f.Add("pillar", "", []byte{}, false)
	f.Fuzz(func(t *testing.T, source, path string, sum []byte, file bool) {
		reply := value.NewMap("sum", sum, "reads", []any{[]any{source, path}, source}, "files",
			[]any{[]any{path, sum}, []any{path, nil}})
		if file {
			reply.Set("reads", []any{[]any{source, path, path}})
		}

		trace, err := ReadTrace(reply)
		if err != nil {
			return
		}

		if len(sum) != 32 || len(trace.Reads) != 1 || len(trace.Files) != 2 || !trace.Files[1].Missing {
			t.Errorf("%+v", trace)
		}

		s := New(Config{})
		m := minion(path, value.NewMap(path, 1))
		s.Put(trace.Sum, m, trace, 1)
		if _, ok := s.Get(trace.Sum, m,
			func(p string) (Sum, bool, error) { return trace.Files[0].Sum, false, nil }); ok &&
			!trace.Files[0].Missing {
			t.Error("given although a file is gone")
		}
	})
}
