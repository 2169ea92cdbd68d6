package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"saltern/test/check"
)

// runDiff runs applianced diff with a salt-run that answers as script says. It returns the exit code
// and what was printed.
func runDiff(t *testing.T, script string, args ...string) (code int, out, errs string) {
	t.Helper()
	return runVerb(t, diffCommand, script, append([]string{"diff"}, args...)...)
}

// runVerb runs a verb as runDiff does.
func runVerb(t *testing.T, verb func(*flags) *cobra.Command, script string, args ...string) (code int, out, errs string) {
	t.Helper()
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "salt-run"), []byte("#!/bin/sh\necho \"$@\" >> "+dir+"/asked\n"+script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	config := filepath.Join(dir, "appliance.yaml")
	check.Must(t, os.WriteFile(config, []byte("data_dir: "+dir+"\n"), 0o600))
	cmd := verb(&flags{config: config})
	root := &cobra.Command{Use: "applianced", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(cmd)
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(args)

	switch err := root.Execute().(type) {
	case nil:
	case exitError:
		code = int(err)
	default:
		code = -1
		stderr.WriteString(err.Error())
	}
	asked, _ := os.ReadFile(dir + "/asked") // it is missing if nothing was asked
	return code, stdout.String(), stderr.String() + string(asked)
}

func TestDiff(t *testing.T) {
	pillars := `{"text": "PILLARS\n", "code": 1}`
	same := `{"text": "SAME\n", "code": 0}`
	lacks := `printf '%s' '{"text": "no git remote has it", "code": 2, "lacks_ref": true}'`
	both := func(pillar, top string) string {
		return "case \"$*\" in *pillar.diff*) " + pillar + ";; *) " + top + ";; esac\n"
	}
	say := func(text string) string { return "printf '%s' '" + text + "'" }

	for _, tt := range []struct {
		name   string
		script string
		args   []string
		code   int
		out    string // a part of what is printed
		errs   string // a part of the errors and of what was asked
	}{
		{"a difference", both(say(pillars), say(same)), []string{"feature"}, 1, "PILLARS\n\nSAME", `ref="feature"`},
		{"a name with a number sign", both(say(same), say(same)), []string{"fix#1"}, 0, "SAME", "ref=fix#1"},
		{"none", both(say(same), say(same)), []string{"feature"}, 0, "SAME", "--out=json"},
		{"only pillars have the ref", both(say(pillars), lacks), []string{"feature"}, 1, "PILLARS\n", ""},
		{"nothing has the ref", both(lacks, lacks), []string{"feature"}, 2, "", "no git remote"},
		{"the master is away", both("exit 1", "exit 1"), []string{"feature"}, 2, "", "ask the master"},
		{"a refusal", both(say(`"Passed invalid arguments"`), "exit 1"), []string{"x"}, 2, "", "Passed invalid"},
		{"one of two", both(say(pillars), "exit 9"), []string{"x", "--pillars", "--tgt", "web*"}, 1, "PILLARS", `tgt="web*"`},
		{"a folder", both(say(pillars), say(same)), []string{"--folder", "/srv/x", "--states"}, 0, "SAME", `folder="/srv/x"`},
		{"a folder of what", say(same), []string{"--folder", "/srv/x"}, 2, "", "--pillars or --states"},
		{"nothing to compare", say(same), nil, -1, "", "name a branch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := runDiff(t, tt.script, tt.args...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.errs) {
				t.Errorf("code %d\n%s\n%s", code, out, errs)
			}
		})
	}

	_, out, _ := runDiff(t, both(say(pillars), say(same)), "feature", "--json")
	var list []diffAnswer
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || list[0].Code != 1 {
		t.Errorf("%v: %s", err, out)
	}

	// The runners are asked once, whatever is printed beside the file.
	xml := `<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"a\"></testsuite>\n`
	for _, tt := range []struct{ name, answer, flag, form, out string }{
		{"a text", `{"text": "TEXT\n", "code": 1, "junit": "` + xml + `"}`, "--pillars=false", "format=text,junit", "TEXT\n\nTEXT\n"},
		{"data", `{"report": {"code": 1}, "code": 1, "junit": "` + xml + `"}`, "--json", "format=data,junit", `"code": 1`},
	} {
		t.Run("junit beside "+tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.xml")
			code, out, asked := runDiff(t, say(tt.answer), "feature", tt.flag, "--junit", file)
			text, _ := os.ReadFile(file)
			if code != 1 || strings.Count(string(text), "<?xml") != 1 || strings.Count(string(text), "<testsuite ") != 2 {
				t.Errorf("code %d: %s", code, text)
			}
			if !strings.Contains(out, tt.out) || strings.Contains(out, "testsuite") {
				t.Errorf("printed %s", out)
			}
			if strings.Count(asked, "diff") != 2 || strings.Count(asked, tt.form) != 2 {
				t.Errorf("asked %s", asked)
			}
		})
	}
}
