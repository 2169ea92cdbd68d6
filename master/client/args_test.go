package client

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// TestKwargNames compares the names that isKwargName accepts with Salt's expression for them,
// written for Go. It also splits a large argument as fast as the argument can be read: with the
// expression that took over a second on a busy machine, and the minion's request got no answer.
func TestKwargNames(t *testing.T) {
	expression := regexp.MustCompile(`^([\p{L}_][\p{L}\p{M}\p{N}_.-]*)=`)
	letters := []rune("ab_.-=9 é١़Ⅷ中€\n\x00\ufffd")
	chance := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		var b strings.Builder
		for range chance.IntN(8) {
			b.WriteRune(letters[chance.IntN(len(letters))])
		}
		if chance.IntN(8) == 0 {
			b.WriteString("\xff=") // no UTF-8
		}

		arg := b.String()
		want := ""
		if m := expression.FindStringSubmatch(arg); m != nil {
			want = m[1]
		}
		name, rest, found := strings.Cut(arg, "=")
		if !found || !isKwargName(name) {
			name = ""
		}
		if name != want {
			t.Fatalf("%q has the name %q, want %q", arg, name, want)
		}
		if got, _, ok := ParseKwarg(arg); ok && got != want {
			t.Fatalf("%q is split at %q, before %q", arg, got, rest)
		}
	}

	large := strings.Repeat("x", 4<<20)
	for arg, want := range map[string]bool{large: false, large + "=1": true, "a=" + large: true} {
		if _, _, ok := ParseKwarg(arg); ok != want {
			t.Errorf("an argument of %d bytes, beginning with %.3q: %v", len(arg), arg, ok)
		}
	}
}

// TestParseArgsGolden compares with Salt 3008.3 (testdata/args.py).
func TestParseArgsGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/args.json")
	if err != nil {
		t.Fatal(err)
	}

	var cases []struct{ Arg, Repr string }
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 200 {
		t.Fatalf("only %d cases", len(cases))
	}

	for _, c := range cases {
		if got := value.Repr(ParseArgs([]string{c.Arg}, nil)); got != c.Repr {
			t.Errorf("%q: got %s, want %s", c.Arg, got, c.Repr)
		}
	}
}

func TestParseArgsNoParse(t *testing.T) {
	got := ParseArgs([]string{"1", "a=1", "b=1"}, map[string]bool{"b": true})
	if want := "[1, {'__kwarg__': True, 'a': 1, 'b': '1'}]"; value.Repr(got) != want {
		t.Errorf("got %s, want %s", value.Repr(got), want)
	}
}

func TestParseCompound(t *testing.T) {
	for _, c := range []struct {
		name  string
		funs  int
		words []string
		want  string
		err   string
	}{
		{"alone", 2, []string{"a", ",", "b", "x=1"}, "[['a'], ['b', {'__kwarg__': True, 'x': 1}]]", ""},
		{"inside", 3, []string{"a,b", "c,", "1"}, "[['a'], ['b', 'c'], [1]]", ""},
		{"none", 2, []string{","}, "[[], []]", ""},
		{"too few", 3, []string{"a,b"}, "", "Cannot execute compound command without defining all arguments."},
		{"too many", 2, []string{"a,b,c"}, "", "Cannot execute compound command with more arguments than commands."},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseCompound(make([]string, c.funs), c.words, ",", nil)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("error %v, want %s", err, c.err)
				}
				return
			}

			if err != nil || value.Repr(got) != c.want {
				t.Errorf("got %s, %v, want %s", value.Repr(got), err, c.want)
			}
		})
	}
}

func FuzzYamlify(f *testing.F) {
	for _, s := range []string{"1", "a=b", "{a: 1}", "[", "#x", "!!binary aGk=", "20261121080455885058"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		args := ParseArgs([]string{s}, nil)
		b, err := msgpack.Marshal(args, msgpack.Raw)
		if err != nil {
			t.Fatalf("%q cannot be published: %v", s, err)
		}

		if _, err := msgpack.Decode(b, msgpack.DefaultLimits); err != nil {
			t.Fatalf("%q: %v", s, err)
		}

		if again := ParseArgs([]string{s}, nil); !reflect.DeepEqual(value.Repr(args), value.Repr(again)) {
			t.Fatalf("%q is read in two ways", s)
		}
	})
}
