package gitremote

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

func decode(t *testing.T, text string) any {
	t.Helper()
	v, err := saltyaml.Decode([]byte(text), "x")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func defaults() *Defaults {
	d := &Defaults{}
	d.Base = "master"
	d.Branch = "master"
	d.Depth = 1
	d.RefTypes = []string{"branch", "tag", "sha"}
	return d
}

func TestParse(t *testing.T) {
	sha := strings.Repeat("ab", 20)
	r, err := defaults().Parse(Files, decode(t, `
https://u:p@git.example.com/x.git:
  - name: x
  - base: 7
  - root: /salt/states/
  - mountpoint: salt://m/n/
  - all_saltenvs: main
  - update_interval: 30
  - depth: 0
  - ssl_verify: false
  - ref_types: Branch, tag,SHA
  - saltenv_whitelist: base,dev
  - saltenv:
    - dev:
      - ref: develop
      - mountpoint: salt://d
    - sha: [{ref: `+sha+`}, {root: r}]
  - refspecs: ['+refs/heads/*:refs/remotes/origin/*']
`))
	if err != nil {
		t.Fatal(err)
	}

	got := fmt.Sprintf("%s %s %s %s %s %d %v %v %q %q %q %s %s %q %s", r.Name, r.Base, r.Root, r.Mountpoint, *r.AllSaltenvs, r.Depth, r.SkipVerify, r.Interval, r.RefTypes, r.Whitelist, r.Refspecs,
		*r.Saltenv["dev"].Ref, *r.Saltenv["dev"].Mountpoint, r.Commits, r.User+r.Password)
	want := `x 7 salt/states m/n main 0 true 30s ["branch" "tag" "sha"] ["base" "dev"] ["+refs/heads/*:refs/remotes/origin/*"] develop d ["` + sha + `"] up`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	r, err = defaults().Parse(Pillar, "dev  ssh://git@h/x")
	if err != nil || r.Branch != "dev" || r.URL != "ssh://git@h/x" {
		t.Errorf("%+v %v", r, err)
	}

	if r, err = defaults().Parse(Pillar, "https://h/x"); err != nil || r.Branch != "master" ||
		r.Interval != time.Minute {
		t.Errorf("%+v %v", r, err)
	}
}

// TestAttack35Options: what is wrong is refused, and no password is shown.
func TestAttack35Options(t *testing.T) {
	for text, want := range map[string]string{
		"https://u:SECRET@h/x:\n- nosuch: 1":                       "no option",
		"https://u:SECRET@h/x:":                                    "colon",
		"https://u:SECRET@h/x: [a]":                                "colon",
		"https://u:SECRET@h/x:\n- root: ../x":                      "leads out",
		"https://u:SECRET@h/x:\n- root: a/../../x":                 "leads out",
		"https://u:SECRET@h/x:\n- mountpoint: a/../b":              "leads out",
		"https://u:SECRET@h/x:\n- saltenv: [{dev: [{root: ..}]}]":  "leads out",
		"https://u:SECRET@h/x:\n- saltenv: [{dev: [{nosuch: x}]}]": "no option",
		"https://u:SECRET@h/x:\n- ref_types: [nosuch]":             "ref_types",
		"https://u:SECRET@h/x:\n- depth: x":                        "number",
		"https://u:SECRET@h/x:\n- refspecs: ['--upload-pack=x']":   "refspec",
		"ext::sh -c id:\n- name: x":                                "not the URL",
		"http://u:SECRET@h/x:\n- name: x":                          "insecure_auth",
		"https://u:SECRET@h/x:\n- env: x":                          "no option",
	} {
		_, err := defaults().Parse(Files, decode(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", text, err)
		}
	}

	for _, entry := range []any{nil, int64(1), "", value.NewMap(), value.NewMap("a", 1, "b", 2),
		value.NewMap("master https://h/x", []any{value.NewMap("base", "x")}),
		value.NewMap("master https://h/x", []any{value.NewMap("update_interval", int64(1))}),
		"master ext::sh", "master -x"} {
		if _, err := defaults().Parse(Pillar, entry); err == nil {
			t.Errorf("%v is taken", entry)
		}
	}
}

func TestTexts(t *testing.T) {
	for _, c := range []struct {
		in   any
		want []string
	}{{"a, b", []string{"a", "b"}}, {[]any{"a", int64(1)}, []string{"a", "1"}}, {int64(2), []string{"2"}}} {
		if got := Texts(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q", c.in, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("https://h/x: [{root: a}]")
	f.Add("master git@h:x")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := saltyaml.Decode([]byte(text), "x")
		if err != nil {
			return
		}

		for _, role := range []Role{Files, Pillar} {
			if r, err := defaults().Parse(role, v); err == nil &&
				(strings.Contains("/"+r.Root+"/", "/../") || strings.Contains("/"+r.Mountpoint+"/", "/../")) {
				t.Fatalf("%+v", r)
			}
		}
	})
}
