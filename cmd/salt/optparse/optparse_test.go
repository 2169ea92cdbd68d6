package optparse

import (
	"fmt"
	"strings"
	"testing"
)

func parser() *Parser {
	return &Parser{Prog: "prog", Usage: "[options] <x>", Text: "What it does.", Epilog: "The end.",
		Options: []Option{
			{Names: []string{"-h", "--help"}, Help: "Help."},
			{Names: []string{"-v", "--verbose"}, Default: false, Help: "More."},
			{Names: []string{"-q"}, Dest: "quiet", Default: false},
			{Names: []string{"-t", "--timeout"}, Kind: Int, Default: 5, Help: "Seconds. Default: %default."},
			{Names: []string{"--hide-timeout"}, Dest: "show", Kind: Unset, Default: true},
			{Names: []string{"--batch-wait"}, Kind: Float, Default: 0.0},
			{Names: []string{"-b", "--batch"}, Kind: Text, Default: ""},
		},
		Groups: []Group{{Title: "Group", Text: "Some words.", Options: []Option{
			{Names: []string{"-l", "--level"}, Kind: Choice, Choices: []string{"a", "b"}},
			{
				Names:   []string{"--out-file", "--output-file"},
				Dest:    "output_file",
				Kind:    Text,
				Metavar: "FILE",
				Help:    "A help text that is much longer than one line of a terminal, so that it has to be broken somewhere.",
			},
		}}}}
}

// TestParse: the messages are those of Python's optparse.
func TestParse(t *testing.T) {
	for _, c := range []struct{ in, args, vals, err string }{
		{"a b", "[a b]", "", ""},
		{"a -v b -t 7 c", "[a b c]", "verbose=true timeout=7", ""},
		{"-vqt7 x", "[x]", "verbose=true quiet=true timeout=7", ""},
		{"-bx -b y --batch=z", "[]", "batch=z", ""},
		{"--verb --time=3", "[]", "verbose=true timeout=3", ""},
		{"--batch 50% --batch-w 1.5", "[]", "batch=50% batch_wait=1.5", ""},
		{"--hide-timeout", "[]", "show=false", ""},
		{"a -- -v --nosuch", "[a -v --nosuch]", "", ""},
		{"- a", "[- a]", "", ""},
		{"--timeout=0x10 -t 010 -t 0b11", "[]", "timeout=3", ""},
		{"--out-f=x", "[]", "output_file=x", ""},
		{"-l a", "[]", "level=a", ""},
		{"--nosuch", "", "", "no such option: --nosuch"},
		{"-z", "", "", "no such option: -z"},
		{"-5", "", "", "no such option: -5"},
		{"--ba=1", "", "", "ambiguous option: --ba (--batch, --batch-wait?)"},
		{"--out=1", "", "", "ambiguous option: --out (--out-file, --output-file?)"},
		{"--verbose=1", "", "", "--verbose option does not take a value"},
		{"--timeout", "", "", "--timeout option requires 1 argument"},
		{"-t", "", "", "-t option requires 1 argument"},
		{"-t x", "", "", "option -t: invalid integer value: 'x'"},
		{"--batch-wait=it's", "", "", `option --batch-wait: invalid floating-point value: "it's"`},
		{"-l c", "", "", "option -l: invalid choice: 'c' (choose from 'a', 'b')"},
	} {
		t.Run(c.in, func(t *testing.T) {
			v, args, err := parser().Parse(strings.Fields(c.in))
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("error %v, want %s", err, c.err)
				}
				return
			}

			if err != nil {
				t.Fatal(err)
			}

			if s := fmt.Sprint(args); s != c.args {
				t.Errorf("arguments %s, want %s", s, c.args)
			}

			given := map[string]bool{}
			for kv := range strings.FieldsSeq(c.vals) {
				k, want, _ := strings.Cut(kv, "=")
				given[k] = true
				if got := fmt.Sprint(v.Get(k)); got != want || !v.Explicit(k) {
					t.Errorf("%s is %s, want %s", k, got, want)
				}
			}

			for o := range parser().All {
				if !given[o.Dst()] && (v.Explicit(o.Dst()) || v.Get(o.Dst()) != o.Default) {
					t.Errorf("%s is %v", o.Dst(), v.Get(o.Dst()))
				}
			}
		})
	}
}

func TestHelp(t *testing.T) {
	const want = `Usage: prog [options] <x>

What it does.

Options:
  -h, --help            Help.
  -v, --verbose         More.
  -q
  -t TIMEOUT, --timeout=TIMEOUT
                        Seconds. Default: 5.
  --hide-timeout
  --batch-wait=BATCH_WAIT
  -b BATCH, --batch=BATCH

  Group:
    Some words.

    -l LEVEL, --level=LEVEL
    --out-file=FILE, --output-file=FILE
                        A help text that is much longer than one line
                        of a terminal, so that it has to be broken
                        somewhere.

The end.
`

	if got := parser().Help(72); got != want {
		t.Errorf("got:\n%s", got)
	}

	for _, width := range []int{0, 1, 20, 500} {
		if !strings.Contains(parser().Help(width), "--timeout") {
			t.Errorf("no help for a screen of %d columns", width)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a -v", "--batch=x", "-t 7", "-- -v", "--ou", "-b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, args, err := parser().Parse(strings.Fields(s))
		if err == nil && len(args) > len(strings.Fields(s)) {
			t.Errorf("%q: arguments %q, %v", s, args, v)
		}
	})
}
