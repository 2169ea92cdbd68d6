package summary

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// golden is a return of a real minion, and what testdata/golden.py counted in it.
type golden struct {
	Name, Function string
	Content        string
	Want           struct {
		OK          int
		Changed     int
		WouldChange int `json:"would_change"`
		Failed      int
		Millis      float64
		FailedIDs   []string `json:"failed_ids"`
		ChangedIDs  []string `json:"changed_ids"`
		Result      string
	}
	content []byte
}

var releases = []string{"3006", "3007", "3008"}

func readGoldens(t testing.TB, release string) (out []golden) {
	t.Helper()
	file, err := os.Open("testdata/golden-" + release + ".jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var g golden
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		if g.content, err = base64.StdEncoding.DecodeString(g.Content); err != nil {
			t.Fatal(err)
		}
		out = append(out, g)
	}
	if lines.Err() != nil || len(out) == 0 {
		t.Fatal("no goldens", lines.Err())
	}
	return out
}

func ids(list []State) []string {
	out := []string{}
	for _, s := range list {
		if s.ID != "" {
			out = append(out, s.ID)
		}
	}
	return out
}

func TestNumbersOfRealReturns(t *testing.T) {
	for _, release := range releases {
		for _, g := range readGoldens(t, release) {
			t.Run(release+" "+g.Name, func(t *testing.T) {
				s := OfPacked(g.Function, g.content)
				counts := [4]int{s.OK, s.Changed, s.WouldChange, s.Failed}
				if want := [4]int{g.Want.OK, g.Want.Changed, g.Want.WouldChange, g.Want.Failed}; counts != want {
					t.Errorf("ok, changed, would change, failed: %v, want %v", counts, want)
				}
				if s.Result.String() != g.Want.Result {
					t.Errorf("result %s, want %s", s.Result, g.Want.Result)
				}
				decoded, err := msgpack.Decode(g.content, msgpack.DefaultLimits)
				if err != nil {
					t.Fatal(err)
				}
				if got := ResultOf(g.Function, decoded.(*value.Map)); got != s.Result {
					t.Errorf("decoded: result %s, packed: %s", got, s.Result)
				}
				if d := s.Duration.Seconds()*1000 - g.Want.Millis; d > 0.01 || d < -0.01 {
					t.Errorf("duration %v, want %v ms", s.Duration, g.Want.Millis)
				}

				for what, lists := range map[string][2][]string{
					"failed":  {ids(s.FailedStates), g.Want.FailedIDs},
					"changed": {ids(s.ChangedStates), g.Want.ChangedIDs},
				} {
					if want := lists[1][:min(len(lists[1]), MaxStates)]; !slices.Equal(lists[0], want) {
						t.Errorf("%s states %q, want %q", what, lists[0], want)
					}
				}
				if s.Result >= Failed && len(s.FailedStates) == 0 && strings.HasPrefix(g.Function, "state.") {
					t.Error("a failed run without a reason")
				}
				checkBounds(t, s)
			})
		}
	}
}

func goldenNamed(t testing.TB, name string) golden {
	t.Helper()
	for _, g := range readGoldens(t, "3008") {
		if g.Name == name {
			return g
		}
	}
	t.Fatalf("no golden %q", name)
	return golden{}
}

func TestTextsOfRealReturns(t *testing.T) {
	for _, tt := range []struct {
		golden string
		get    func(Summary) string
		want   string
	}{
		{"corrected", func(s Summary) string { return s.ChangedStates[0].Changes },
			"-PermitRootLogin yes\n+PermitRootLogin no"},
		{"corrected", func(s Summary) string { return s.ChangedStates[0].SLS }, "sshd"},
		{"corrected", func(s Summary) string { return s.ChangedStates[0].Function }, "file.managed"},
		{"would correct", func(s Summary) string { return s.ChangedStates[0].Changes },
			"-PermitRootLogin yes\n+PermitRootLogin no"},
		{"failed", func(s Summary) string { return s.FailedStates[0].Comment }, "The disk is full"},
		{"failed", func(s Summary) string { return s.FailedStates[1].Comment },
			"One or more requisite failed: bad.first"},
		{"no such sls", func(s Summary) string { return s.FailedStates[0].Comment },
			"No matching sls found for 'nothing_here' in env 'base'"},
		{"single", func(s Summary) string { return s.ChangedStates[0].Changes },
			"testing: Unchanged → Something pretended to change"},
		{"odd", func(s Summary) string { return s.ChangedStates[0].ID }, "odd|-name_|-x"},
		{"odd", func(s Summary) string { return s.ChangedStates[0].Name }, "a_|-b_|-c"},
	} {
		t.Run(tt.golden, func(t *testing.T) {
			g := goldenNamed(t, tt.golden)
			s := OfPacked(g.Function, g.content)
			if got := tt.get(s); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// state returns the return of one state, with fields in addition to its result.
func state(result any, kv ...any) *value.Map {
	m := value.NewMap("result", result, "changes", &value.Map{}, "comment", "", "__run_num__", 0)
	m.Update(value.NewMap(kv...))
	return m
}

func TestShapes(t *testing.T) {
	tag := "test_|-a_|-a_|-nop"
	changes := value.NewMap("x", 1)
	for _, tt := range []struct {
		name, function string
		ret            any
		retcode        int
		success        bool
		want           Result
		counts         [4]int
	}{
		{"masterless", "state.apply", value.NewMap("local", value.NewMap(tag, state(true))), 0, true, OK, [4]int{1}},
		{"two functions", "test.ping,state.apply", value.NewMap("test.ping", true,
			"state.apply", value.NewMap(tag, state(true, "changes", changes))), 0, true, Changed, [4]int{0, 1}},
		{"two functions, error", "test.ping,state.apply", value.NewMap("test.ping", true,
			"state.apply", []any{"no"}), 1, false, Error, [4]int{}},
		{"alias", "site.converge", value.NewMap(tag, state(false)), 2, false, Failed, [4]int{0, 0, 0, 1}},
		{"of others", "publish.publish", value.NewMap("db1", value.NewMap(tag, state(false))), 0, true, OK, [4]int{}},
		{"changes are a text", "state.apply", value.NewMap(tag, state(true, "changes", "x")), 0, true, Changed, [4]int{0, 1}},
		{"changes are a list", "state.apply", value.NewMap(tag, state(true, "changes", []any{})), 0, true, OK, [4]int{1}},
		{"no changes", "state.apply", value.NewMap(tag, value.NewMap("result", true)), 0, true, OK, [4]int{1}},
		{"no result", "state.apply", value.NewMap(tag, value.NewMap("comment", "")), 0, true, OK, [4]int{}},
		{"state is no map", "state.apply", value.NewMap(tag, "x"), 2, false, Failed, [4]int{}},
		{"empty", "state.apply", &value.Map{}, 0, true, OK, [4]int{}},
		{"nothing", "state.apply", nil, 0, true, OK, [4]int{}},
		{"text", "state.apply", "Traceback", 1, false, Error, [4]int{}},
		{"over its quota", "state.apply", "VALUE_TRIMMED: over its quota", 0, true, OK, [4]int{}},
		{"over its quota, failed", "state.apply", "VALUE_TRIMMED: over its quota", 2, false, Failed, [4]int{}},
		{"text of another", "cmd.run", "no", 1, false, Failed, [4]int{}},
		{"list of another", "cmd.run_all", []any{"no"}, 0, true, OK, [4]int{}},
		{"onfail mended it", "state.apply", value.NewMap(tag, state(false)), 0, true, Failed, [4]int{0, 0, 0, 1}},
		{"refused", "test.ping", true, 0, false, Failed, [4]int{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Of(tt.function, tt.ret, tt.retcode, tt.success)
			if s.Result != tt.want {
				t.Errorf("result %s, want %s", s.Result, tt.want)
			}
			fields := value.NewMap("return", tt.ret, "retcode", int64(tt.retcode), "success", tt.success)
			if got := ResultOf(tt.function, fields); got != tt.want {
				t.Errorf("decoded: result %s, want %s", got, tt.want)
			}
			if counts := [4]int{s.OK, s.Changed, s.WouldChange, s.Failed}; counts != tt.counts {
				t.Errorf("ok, changed, would change, failed: %v, want %v", counts, tt.counts)
			}
		})
	}
}

func TestRetcodesByFunction(t *testing.T) {
	content, err := msgpack.Marshal(value.NewMap(
		"return", value.NewMap("test.ping", true, "cmd.run", "no"),
		"retcode", value.NewMap("test.ping", 0, "cmd.run", 3),
		"success", value.NewMap("test.ping", true, "cmd.run", false),
	), msgpack.Modern)
	if err != nil {
		t.Fatal(err)
	}
	if s := OfPacked("test.ping,cmd.run", content); s.Result != Failed || s.Retcode != 3 {
		t.Errorf("%s, code %d", s.Result, s.Retcode)
	}
}

func TestDurations(t *testing.T) {
	for _, tt := range []struct {
		in   any
		want time.Duration
	}{
		{1.5, 1500 * time.Microsecond},
		{2, 2 * time.Millisecond},
		{"3.5 ms", 3500 * time.Microsecond},
		{"", 0},
		{-1.0, 0},
		{1e300, 365 * 24 * time.Hour},
		{[]any{1}, 0},
		{nil, 0},
	} {
		t.Run(fmt.Sprint(tt.in), func(t *testing.T) {
			s := Of("state.apply", value.NewMap("test_|-a_|-a_|-nop", state(true, "duration", tt.in)), 0, true)
			if s.Duration != tt.want {
				t.Errorf("%v, want %v", s.Duration, tt.want)
			}
		})
	}
}

func TestSlowestAreSortedAndBounded(t *testing.T) {
	all := &value.Map{}
	for i := range 20 {
		id := fmt.Sprintf("s%02d", i)
		all.Set("test_|-"+id+"_|-"+id+"_|-nop", state(true, "duration", float64(i*7%10)))
	}
	got := ids(Of("state.apply", all, 0, true).Slowest)
	if want := []string{"s07", "s17", "s04", "s14", "s01"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func checkBounds(t *testing.T, s Summary) {
	t.Helper()
	if len(s.FailedStates) > MaxStates || len(s.ChangedStates) > MaxStates || len(s.Slowest) > MaxSlowest {
		t.Fatalf("%d failed, %d changed, %d slow states", len(s.FailedStates), len(s.ChangedStates), len(s.Slowest))
	}
	if s.Duration < 0 {
		t.Fatalf("duration %v", s.Duration)
	}

	texts := []string{s.Function, s.Revision}
	for _, state := range slices.Concat(s.FailedStates, s.ChangedStates, s.Slowest) {
		texts = append(texts, state.ID, state.SLS, state.Name, state.Function, state.Comment, state.Changes)
	}
	for _, text := range texts {
		if len(text) > MaxText || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\x1b\r") {
			t.Fatalf("text %q", text)
		}
	}

	again, err := Parse(Append(nil, s))
	if err != nil || !reflect.DeepEqual(again, s) {
		t.Fatalf("packed and read again: %v\n%+v\n%+v", err, s, again)
	}
}

func FuzzOfPacked(f *testing.F) {
	for _, release := range releases {
		for _, g := range readGoldens(f, release) {
			if len(g.content) < 8192 {
				f.Add(g.Function, g.content)
			}
		}
	}

	f.Fuzz(func(t *testing.T, function string, content []byte) {
		s := OfPacked(function, content)
		checkBounds(t, s)

		// The same return, decoded and packed again, has the same summary.
		decoded, err := msgpack.Decode(content, msgpack.DefaultLimits)
		if err != nil {
			return
		}
		packed, err := msgpack.Marshal(decoded, msgpack.Modern)
		if err != nil || !bytes.Equal(packed, content) {
			return // with repeated keys, or bytes that are no text
		}
		if again := OfPacked(function, packed); !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v\n%+v", s, again)
		}
		if m, ok := decoded.(*value.Map); ok {
			if got := ResultOf(function, m); got != s.Result {
				t.Fatalf("decoded: %s, packed: %s", got, s.Result)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for i, g := range readGoldens(f, "3008") {
		s := OfPacked(g.Function, g.content)
		for k := range s.ChangedStates {
			s.ChangedStates[k].Cause = Cause((i + k) % 5)
		}
		f.Add(Append(nil, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(Append(nil, s))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("packed and read again: %v\n%+v\n%+v", err, s, again)
		}
	})
}

func TestParseRefusesDamage(t *testing.T) {
	g := goldenNamed(t, "too many")
	whole := Append(nil, OfPacked(g.Function, g.content))
	for n := range whole {
		if _, err := Parse(whole[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were taken", n, len(whole))
		}
	}
	if _, err := Parse(append(slices.Clone(whole), 0)); err == nil {
		t.Error("a byte behind it was taken")
	}
	whole[0]++
	if _, err := Parse(whole); err == nil {
		t.Error("another version was taken")
	}
}

// BenchmarkOfPacked: one return of a highstate of 100 states has to cost at most 0.05 ms.
func BenchmarkOfPacked(b *testing.B) {
	for _, name := range []string{"first highstate", "second highstate", "too many", "ping"} {
		g := goldenNamed(b, name)
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			var s Summary
			before := userTime(b)
			for b.Loop() {
				s = OfPacked(g.Function, g.content)
			}
			b.ReportMetric(float64(userTime(b)-before)/float64(b.N), "cpu-ns/op")
			packed := Append(nil, s)
			b.ReportMetric(float64(len(packed)), "packed-bytes")
		})
	}
}

// userTime returns the CPU time of this process. Unlike the time that has passed, it does not grow
// with the load of other processes.
func userTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
