package minion

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// captured are the loads of real minions, packed.
func captured(tb testing.TB) map[string][]byte {
	tb.Helper()
	raw, err := os.ReadFile("../../testdata/wire/index.json")
	if err != nil {
		tb.Fatal(err)
	}

	var index struct {
		Vectors []struct {
			File   string
			Expect any
		}
	}

	if err := json.Unmarshal(raw, &index); err != nil {
		tb.Fatal(err)
	}

	out := map[string][]byte{}
	for _, v := range index.Vectors {
		load, ok := fromJSON(v.Expect).(*value.Map)
		if !ok || load.Str("cmd") == "" || !strings.HasSuffix(v.File, "_req.bin") {
			continue
		}
		if out[v.File], err = msgpack.Marshal(load, msgpack.Raw); err != nil {
			tb.Fatal(err)
		}
	}

	if len(out) < 20 {
		tb.Fatalf("only %d captured requests were found", len(out))
	}

	return out
}

func fromJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := value.NewMap()
		for k, x := range v {
			m.Set(k, fromJSON(x))
		}
		return m
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = fromJSON(x)
		}
		return out
	case float64:
		return int64(v)
	}

	return v
}

func load(tb testing.TB, packed []byte) *value.Map {
	tb.Helper()
	v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
	if err != nil {
		tb.Fatal(err)
	}
	return v.(*value.Map)
}

func TestEventRequest(t *testing.T) {
	ev := func(kv ...any) any { return value.NewMap(kv...) }
	long := strings.Repeat("x", 10000)
	for name, c := range map[string]struct {
		load *value.Map
		want []string // tags
	}{
		"one":               {value.NewMap("tag", "a", "data", 1), []string{"a"}},
		"one without data":  {value.NewMap("tag", "a"), nil},
		"one without a tag": {value.NewMap("data", 1), nil},
		"list": {value.NewMap("events", []any{ev("tag", "a"), 7, ev("tag", "b", "data", 1)}),
			[]string{"a", "b"}},
		"empty list": {value.NewMap("events", []any{}, "tag", "a", "data", 1), nil},
		"no list":    {value.NewMap("events", nil, "tag", "a", "data", 1), []string{"a"}},
		"under a common tag": {value.NewMap("pretag", "p", "events", []any{ev("tag", "a"), ev()}),
			[]string{"p/a", "a", "p/", ""}},
		"pretag that is none": {value.NewMap("pretag", 1, "events", []any{ev("tag", "a")}), []string{"a"}},
		"long pretag": {value.NewMap("pretag", long, "events", []any{ev("tag", "a")}),
			[]string{long[:maxEventTag] + "/a", "a"}},
		"long tag": {value.NewMap("pretag", "p", "events", []any{ev("tag", long)}),
			[]string{"p/" + long[:maxEventTag], long}},
	} {
		var got []string
		for tag := range eventRequest(c.load) {
			got = append(got, tag)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A tag in front of many events is not copied for each of them at a length that
// no tag may have: with one of megabytes before two million events, that took a
// master minutes.
func TestLongPretagIsNotCopied(t *testing.T) {
	events := make([]any, 1000)
	for i := range events {
		events[i] = value.NewMap()
	}

	var filter EventFilter
	made := 0
	for tag := range eventRequest(value.NewMap("pretag", strings.Repeat("x", 1<<20), "events", events)) {
		made += len(tag)
		if filter.Allowed("web1", tag) {
			t.Fatalf("allowed: %.20q", tag)
		}
	}

	if made > 1<<20 {
		t.Errorf("%d bytes of tags for one request", made)
	}
}

func TestJobRequest(t *testing.T) {
	kw := func(kv ...any) *value.Map { return value.NewMap(append(kv, "__kwarg__", true)...) }
	for name, c := range map[string]struct {
		load     *value.Map
		fun, arg any // nil: refused
	}{
		"plain": {value.NewMap("fun", "test.ping"), "test.ping", []any{}},
		"yaml": {value.NewMap("fun", "f.f", "arg", []any{"1", "{a: b}", int64(2), nil}), "f.f",
			[]any{int64(1), value.NewMap("a", "b"), int64(2), nil}},
		"named": {value.NewMap("fun", "f.f", "arg", []any{"x=1", "y=2", kw("z", "3"), "p"}, "no_parse", []any{"y", 7}),
			"f.f", []any{"p", kw("x", int64(1), "y", "2", "z", "3")}},
		"map": {value.NewMap("fun", "f.f", "arg", []any{value.NewMap("a", 1)}), "f.f",
			[]any{value.NewMap("a", 1)}},
		"arg is no list": {value.NewMap("fun", "f.f", "arg", "x"), "f.f", []any{}},
		"several": {value.NewMap("fun", "a.a,b.b,c.c", "arg", []any{"x y", ""}),
			[]any{"a.a", "b.b", "c.c"}, []any{[]any{"x", "y"}, []any{}, []any{}}},
		"several, no texts": {value.NewMap("fun", "a.a,b.b", "arg", []any{[]any{"x"}}), nil, nil},
		"too many":          {value.NewMap("fun", strings.Repeat("a.a,", 100000)), nil, nil},
	} {
		fun, arg, ok := newJobRequest(c.load).functionsAndArgs()
		if ok != (c.fun != nil) || value.Repr(fun) != value.Repr(c.fun) || value.Repr(arg) != value.Repr(c.arg) {
			t.Errorf("%s: %v %v %v", name, ok, value.Repr(fun), value.Repr(arg))
		}
	}

	for _, c := range []struct {
		tmo  any
		want time.Duration
	}{
		{nil, 0},
		{int64(-1), 0},
		{int64(7), 7 * time.Second},
		{int64(46), maxPeerWait},
		{int64(1) << 62, maxPeerWait},
		{"7", 0},
	} {
		if r := newJobRequest(value.NewMap("fun", "f.f", "timeout", c.tmo)); r.wait != c.want {
			t.Errorf("timeout %v: waits %v, want %v", c.tmo, r.wait, c.want)
		}
	}
}

// Every captured request is read as what its minion meant.
func TestCapturedRequests(t *testing.T) {
	loads := captured(t)
	if r, ok := pillarRequest("min8", load(t, loads["pillar_min8_req.bin"])); !ok ||
		r.Grains.Str("os") == "" || r.Grains.Str("id") != "min8" {
		t.Errorf("pillar: %v %v", ok, r)
	}

	for file, want := range map[string]string{
		"minion_start_min6_req.bin": "salt/minion/min6/start",
		"event_custom_req.bin":      "my/custom/tag",
	} {
		n := 0
		for tag := range eventRequest(load(t, loads[file])) {
			n++
			if tag != want {
				t.Errorf("%s: %q", file, tag)
			}
		}

		if n != 1 {
			t.Errorf("%s: %d events", file, n)
		}
	}

	r := newJobRequest(load(t, loads["minion_pub_req.bin"]))
	if fun, arg, ok := r.functionsAndArgs(); !ok || fun != "test.ping" || value.Repr(arg) != "[]" || r.tgt != "min7" ||
		r.tgtType != "glob" || r.ret != "" || r.full || r.wait != 5*time.Second {
		t.Errorf("minion_pub: %+v", r)
	}

	if jid := jidRequest(load(t, loads["pub_ret_req.bin"])); jid != "20261121080712328643" {
		t.Errorf("pub_ret: %q", jid)
	}
}

// FuzzRequests: no load makes reading it panic, or gives what is out of bounds.
func FuzzRequests(f *testing.F) {
	for _, b := range captured(f) {
		f.Add(b)
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := msgpack.Decode(b, msgpack.DefaultLimits)
		l, ok := v.(*value.Map)
		if err != nil || !ok {
			return
		}

		for tag := range eventRequest(l) {
			if len(tag) > max(len(b), 2*maxEventTag+1) {
				t.Errorf("a tag of %d bytes", len(tag))
			}
		}

		r := newJobRequest(l)
		if r.wait < 0 || r.wait > maxPeerWait {
			t.Errorf("waits %v", r.wait)
		}

		if fun, arg, ok := r.functionsAndArgs(); ok {
			if funs, several := fun.([]any); several && len(funs) != len(arg.([]any)) {
				t.Errorf("%v with %v", fun, arg)
			}
		}

		jidRequest(l)
		if r, ok := pillarRequest("web1", l); ok && r.Grains.Str("id") != "web1" {
			t.Errorf("grains of %q", r.Grains.Str("id"))
		}
	})
}
