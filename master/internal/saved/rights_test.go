package saved

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"saltern/master/internal/acl"
	"saltern/master/runner"
	"saltern/master/value"
)

// hostileTexts returns texts that parsers on the way could read as something else than one text.
func hostileTexts() []string {
	pieces := []string{"*", "web*", "[a-z]", "a b", " ", "kwarg=", "test=False", "fun=cmd.run", "tgt=*", "__kwarg__=True",
		"__pub_id=root", "{a: b}", "[1, 2]", "- x\n- y", "a\nb", "\n", "\t", "ä", "日本", "\u202e", "\u0000a", "'", "\"",
		"; rm -rf /", "$(id)", "`id`", "{{ 7*7 }}", "{% raw %}", "null", "~", "True", "007", "1e3", "0x1F", "1.10", "--",
		"--out=json", "-b1", "@all", "G@os:x", "N@web", "and", "or not", "{sls}", "{other}", "%s", "\\", "!!python/object", "&a",
		"<<: x", "é=1", "x==y", "x=", "=x", "name=deploy"}
	random := rand.New(rand.NewPCG(44, 8))
	out := append([]string{}, pieces...)
	for len(out) < 260 {
		var b strings.Builder
		for range 1 + random.IntN(4) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		out = append(out, b.String())
	}
	return out
}

// TestFieldStaysOneArgument: whatever somebody fills in is one value of one argument, as text, or is
// refused. (Minions read name=value among the positional arguments as a named argument:
// salt/minion.py load_args_and_kwargs.)
func TestFieldStaysOneArgument(t *testing.T) {
	job, err := readJob("x", parse(t, `
target: web
function: cmd.run
args: ['first', '{a}', [in, '{a}']]
kwargs: {b: '{a}', nested: {deep: ['{a}']}, constant: 1}
fields: [{name: a}]
`))
	if err != nil {
		t.Fatal(err)
	}
	named, err := readJob("y", parse(t, "{target: web, function: cmd.run, kwargs: {b: '{a}'}, fields: [{name: a}]}"))
	if err != nil {
		t.Fatal(err)
	}

	refused := 0
	for _, text := range hostileTexts() {
		args, kwargs, err := job.Fill(value.NewMap("a", text))
		if err != nil {
			refused++
			if !acl.HidesNamed([]any{text}) && !strings.Contains(text, "\x00") {
				t.Errorf("%q: %v", text, err)
			}
		} else {
			want := fmt.Sprintf("%q", []any{"first", text, []any{"in", text}})
			if got := fmt.Sprintf("%q", args); got != want || acl.HidesNamed(args) {
				t.Errorf("%q: arguments %s, want %s", text, got, want)
			}
			if kwargs.Len() != 3 || kwargs.Value("b") != any(text) || kwargs.Map("nested").List("deep")[0] != any(text) {
				t.Errorf("%q: named %s", text, value.Repr(kwargs))
			}
		}

		// As a named argument each text gets there.
		_, kwargs, err = named.Fill(value.NewMap("a", text))
		if (err == nil) == strings.Contains(text, "\x00") || err == nil && (kwargs.Len() != 1 || kwargs.Value("b") != any(text)) {
			t.Errorf("%q by name: %v, %v", text, kwargs, err)
		}
	}
	if refused == 0 || refused > 150 {
		t.Errorf("%d refused", refused)
	}

	for _, nested := range []any{value.NewMap("__kwarg__", true, "test", false), []any{"a"}, int64(7), 1.5, true, nil, []byte("a")} {
		if _, _, err := job.Fill(value.NewMap("a", nested)); err == nil {
			t.Errorf("%s passes as text", value.Repr(nested))
		}
	}
}

func TestFieldKinds(t *testing.T) {
	job, err := readJob("x", parse(t, `
target: web
function: test.arg
args: ['{t}', '{n}', '{c}', '{b}']
fields:
- {name: t, pattern: 'v[0-9]+|head'}
- {name: n, kind: number, pattern: '[0-9.]+', default: 5}
- {name: c, kind: choice, choices: ['on', 'off'], default: 'off'}
- {name: b, kind: bool, default: false}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ given, want string }{
		{"{t: v1}", "['v1', 5, 'off', False]"},
		{"{t: head, n: 7, c: 'on', b: true}", "['head', 7, 'on', True]"},
		{"{t: v22, n: '7.5', b: 'TRUE'}", "['v22', 7.5, 'off', True]"},
		{"{}", ""},
		{"{t: 'v1 '}", ""},
		{"{t: \"v1\\n\"}", ""},
		{"{t: xv1}", ""},
		{"{t: 'headv1'}", ""},
		{"{t: v1, n: -1}", ""},
		{"{t: v1, n: '1e9'}", ""},
		{"{t: v1, n: .nan}", ""},
		{"{t: v1, n: 12345678901234567890}", ""},
		{"{t: v1, c: true}", ""},
		{"{t: v1, c: On}", ""},
		{"{t: v1, b: 1}", ""},
		{"{t: v1, b: yep}", ""},
		{"{t: v1, x: 1}", ""},
	} {
		args, _, err := job.Fill(parse(t, c.given))
		got := ""
		if err == nil {
			got = value.Repr(args)
		}
		if got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.given, got, err, c.want)
		}
	}
}

func TestWhoMayRun(t *testing.T) {
	job, err := readJob("x", parse(t, `
target: web
function: test.ping
may_run: {pam: [ann, 'ops%'], ldap: ['*'], host: [joe]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		by  runner.Caller
		may bool
	}{
		{runner.Caller{Name: "ann", Eauth: "pam"}, true},
		{runner.Caller{Name: "ann", Eauth: "file"}, false},
		{runner.Caller{Name: "ann"}, false},
		{runner.Caller{Name: "Ann", Eauth: "pam"}, false},
		{runner.Caller{Name: "bob", Eauth: "pam", Groups: []string{"ops"}}, true},
		{runner.Caller{Name: "bob", Eauth: "pam", Groups: []string{"ops%", "op"}}, false},
		{runner.Caller{Name: "ops%", Eauth: "pam"}, false},
		{runner.Caller{Name: "ops", Eauth: "pam"}, false},
		{runner.Caller{Name: "*", Eauth: "pam"}, false},
		{runner.Caller{Name: "any", Eauth: "ldap"}, true},
		{runner.Caller{Name: "", Eauth: "ldap"}, false},
		{runner.Caller{Name: "joe"}, true},
		{runner.Caller{Name: "joe", Eauth: "host"}, true}, // a system of that name is the administrator's own
		{runner.Caller{User: "joe"}, false},
		{runner.Caller{}, false},
		{runner.Caller{Name: "x", Eauth: "pam", Granted: true}, false},
		{runner.Caller{Name: "x", Eauth: "pam", Full: true}, true},
		{runner.Caller{User: "root", All: true}, true},
	} {
		if got := mayRun(job, c.by); got != c.may {
			t.Errorf("%+v: %v", c.by, got)
		}
	}
	none, err := readJob("x", parse(t, "{target: web, function: test.ping}"))
	if err != nil {
		t.Fatal(err)
	}
	if mayRun(none, runner.Caller{Name: "ann", Eauth: "pam"}) || mayRun(nil, runner.Caller{Name: "ann", Eauth: "ldap"}) {
		t.Error("somebody runs a job that names nobody")
	}
}

// TestTargetsDoNotReadPillars: who may save targets, and has not all rights, saves no pattern for
// values of pillars, however he writes it: by the minions that it selects he would read pillars.
func TestTargetsDoNotReadPillars(t *testing.T) {
	for _, c := range []struct {
		settings string
		refused  bool
	}{
		{"{expression: 'role:web', type: pillar}", false},
		{"{expression: 'web*'}", false},
		{"{expression: 'os:De*', type: grain}", false},
		{"{expression: 'N@fromconfig and I@role:web', type: compound}", false},
		{"{expression: 'key:a*', type: pillar}", true},
		{"{expression: 'key:^a', type: pillar_pcre}", true},
		{"{expression: 'web* and ( not I@key:a? )', type: compound}", true},
		{"{expression: 'J|@key|^a', type: compound}", true},
		{"{expression: 'N@root', type: compound}", true},
		{"{expression: root, type: nodegroup}", true},
		{"{expression: 'N@configured', type: compound}", true},
	} {
		s, _ := service(t, &fleet{})
		s.cfg.Store.groups.Set("configured", "I@key:b*")
		s.cfg.Store.mustSet(t, KindTarget, "root", "{expression: 'key:a*', type: pillar}")
		version := s.cfg.Store.Objects().Version
		settings := parse(t, c.settings)
		settings.Set("name", "mine")
		ann := runner.Caller{User: "ann", Name: "ann", Eauth: "pam", Person: true, Granted: true}
		_, err := callAs(t, s, ann, "saved.set_target", nil, settings)
		if _, refused := errors.AsType[invalid](err); refused != c.refused || err != nil && !strings.Contains(err.Error(), "pillar") {
			t.Errorf("%s: %v", c.settings, err)
		}
		whole := value.NewMap("targets", value.NewMap("other", parse(t, c.settings)))
		for _, test := range []bool{true, false} {
			_, err = callAs(t, s, ann, "saved.import", []any{whole}, value.NewMap("test", test))
			if (err != nil) != c.refused {
				t.Errorf("%s imported with test %v: %v", c.settings, test, err)
			}
		}
		if c.refused && s.cfg.Store.Objects().Version != version {
			t.Errorf("%s: something was saved", c.settings)
		}
		if _, err = callAs(t, s, root(), "saved.set_target", nil, settings); err != nil {
			t.Errorf("%s: root: %v", c.settings, err)
		}
	}
}
