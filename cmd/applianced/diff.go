package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"saltern/cmd/internal/tty"
	"saltern/internal/command"
	"saltern/internal/printable"
	"saltern/supervisor/settings"
)

// Exit codes of applianced diff.
const (
	exitDiffers = 1
	exitUntold  = 2
)

// diffOptions are the flags of applianced diff. Each is an argument of the runners.
type diffOptions struct {
	arguments map[string]*string
	pillars   bool
	states    bool
	json      bool
	junit     string
}

// diffCommand returns the verb that says what a ref would change.
func diffCommand(f *flags) *cobra.Command {
	o := diffOptions{arguments: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "diff [REF]",
		Short: "Show what a branch, tag, commit or folder would change for which minions",
		Args:  cobra.MaximumNArgs(1),
		Long: `diff compares the pillars and the states of the minions as they are served with what a
branch, tag or commit that has been fetched would give, or a folder on this node. Minions
with the same difference are one group. Secrets are compared and not shown. Nothing of
the ref that has an effect is run; what cannot be told without is named.

It asks the master by salt-run pillar.diff and top.diff. It exits with 0 when nothing
differs, 1 when something does, 2 when it could not be told.`,
		Example: `  applianced diff feature/ports
  applianced diff feature/ports --pillars --tgt 'web*'
  applianced diff --folder /srv/ci/merge-17 --states --junit report.xml
  applianced diff v2.1 --from v2.0 --json | jq '.[].groups[].count'`,
	}

	for _, a := range []struct{ name, usage string }{
		{"folder", "compare this folder instead of a ref"},
		{"from", "compare with this ref instead of what is served"},
		{"tgt", "which minions (default: all)"},
		{"tgt-type", "how --tgt selects them, such as grain or compound (default: glob)"},
		{"remote", "git remote, by URL or name (default: each that has the ref)"},
		{"into", "branch of which the ref takes the place"},
		{"env", "environment of which a folder takes the place (default: base)"},
		{"saltenv", "environment of the minions' files"},
		{"pillarenv", "environment of the minions' pillars"},
	} {
		o.arguments[strings.ReplaceAll(a.name, "-", "_")] = cmd.Flags().String(a.name, "", a.usage)
	}
	cmd.Flags().BoolVar(&o.pillars, "pillars", false, "compare pillars only")
	cmd.Flags().BoolVar(&o.states, "states", false, "compare states only")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the reports for programs")
	cmd.Flags().StringVar(&o.junit, "junit", "", "write the reports to this file in the form of JUnit, too; - prints them instead")
	cmd.MarkFlagsMutuallyExclusive("pillars", "states")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && *o.arguments["folder"] == "" {
			return misused("diff: name a branch, tag or commit, or a folder with --folder")
		}
		ref := ""
		if len(args) > 0 {
			ref = args[0]
		}
		o.arguments["ref"] = &ref
		code, err := o.run(cmd, f)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "applianced:", withAdvice(err, os.Geteuid()))
			return exitWith(exitUntold)
		}
		return exitWith(code)
	}
	return cmd
}

// diffAnswer is the result of a runner.
type diffAnswer struct {
	Text     string          `json:"text"`
	Code     int             `json:"code"`
	LacksRef bool            `json:"lacks_ref"` // no git remote of pillars, or of states, has the ref
	JUnit    string          `json:"junit"`     // if it was asked for besides
	Report   json.RawMessage `json:"report"`    // the report as data, if JUnit was asked for besides
}

// run asks the runners and prints what they return. code is the exit code.
func (o *diffOptions) run(cmd *cobra.Command, f *flags) (code int, err error) {
	form := "text"
	switch {
	case o.json:
		form = ""
	case o.junit == "-":
		form = "junit"
	case hasColours(cmd):
		form = "colour"
	}

	reports := &diffReports{}
	if err := o.ask(cmd.Context(), f, form, reports); err != nil {
		return 0, err
	}
	if err := reports.write(cmd.OutOrStdout(), form); err != nil {
		return 0, err
	}
	if o.toFile() {
		if err := reports.writeFile(o.junit); err != nil {
			return 0, err
		}
	}
	return reports.code, nil
}

// toFile reports whether a file gets the reports in the form of JUnit.
func (o *diffOptions) toFile() bool { return o.junit != "" && o.junit != "-" }

// hasColours reports whether the output of a verb goes to a terminal with colours.
func hasColours(cmd *cobra.Command) bool {
	return tty.Is(cmd.OutOrStdout()) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// ask asks the runners, and adds their reports. A ref that only pillars or only states have is
// compared there.
func (o *diffOptions) ask(ctx context.Context, f *flags, form string, into *diffReports) error {
	runners := []string{"pillar.diff", "top.diff"}
	switch {
	case o.pillars:
		runners = runners[:1]
	case o.states:
		runners = runners[1:]
	case *o.arguments["folder"] != "":
		return misused("diff: say with --pillars or --states what the folder holds")
	}

	asked := form
	if o.toFile() {
		asked = cmp.Or(form, "data") + ",junit"
	}
	lacking := ""
	for _, fun := range runners {
		raw, err := saltRun(ctx, f, fun, asked, o.arguments)
		if err != nil {
			return err
		}

		var a diffAnswer
		if err := json.Unmarshal(raw, &a); err != nil {
			return fmt.Errorf("read the report of %s: %w", fun, err)
		}
		if a.LacksRef {
			lacking = a.Text
			continue
		}
		into.add(raw, a)
	}
	if len(into.raw) == 0 {
		return errors.New(printable.Brief(lacking, 500))
	}
	return nil
}

// saltRun calls a runner with arguments that are not empty, and returns its result in JSON.
func saltRun(ctx context.Context, f *flags, fun, form string, arguments map[string]*string) (json.RawMessage, error) {
	tool, err := toolBesides("salt-run")
	if err != nil {
		return nil, err
	}
	s, err := settings.Load(f.config, hostname())
	if err != nil {
		return nil, err
	}

	argv := []string{tool, "--config-dir=" + s.MasterConf(), "--out=json", "--no-color", fun}
	for name, v := range arguments {
		if *v != "" {
			argv = append(argv, name+"="+asText(*v))
		}
	}
	if form != "" {
		argv = append(argv, "format="+form)
	}

	const maxReport = 64 << 20
	out, err := command.Do(ctx, command.Exec{MaxOutput: maxReport}, argv...)
	if err != nil {
		return nil, fmt.Errorf("ask the master for %s: %w", fun, err)
	}
	var refusal string
	if json.Unmarshal(out, &refusal) == nil { // wrong arguments, or an exception
		return nil, fmt.Errorf("%s: %s", fun, printable.Brief(strings.TrimSpace(refusal), 500))
	}
	return json.RawMessage(out), nil
}

// asText returns a value in the form that salt-run reads as this text, even if it looks like a number,
// such as a commit. Within quotes salt-run takes # for a part of a text that has no quotes.
func asText(v string) string {
	if strings.ContainsAny(v, "#\t\r\n") {
		return v
	}
	return strconv.Quote(v)
}

// toolBesides returns the path of one of Salt's tools: beside this program, or in PATH.
func toolBesides(name string) (string, error) {
	if own, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(own), name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s: %w; install the package saltern-tools", name, err)
	}
	return path, nil
}

// diffReports are the reports of one run.
type diffReports struct {
	raw   []json.RawMessage
	texts []string
	junit []string
	code  int
}

func (d *diffReports) add(raw json.RawMessage, a diffAnswer) {
	if a.Report != nil {
		raw = a.Report
	}
	d.raw = append(d.raw, raw)
	d.texts = append(d.texts, a.Text)
	d.junit = append(d.junit, a.JUnit)
	// A difference counts more than what could not be told.
	if d.code == 0 || a.Code == exitDiffers {
		d.code = a.Code
	}
}

func (d *diffReports) write(w io.Writer, form string) error {
	switch form {
	case "":
		return writeJSON(w, d.raw)
	case "junit":
		return writeSuites(w, d.texts)
	}
	_, err := io.WriteString(w, strings.Join(d.texts, "\n"))
	return err
}

// writeFile writes the reports to a file in the form of JUnit.
func (d *diffReports) writeFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	err = writeSuites(file, d.junit)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the report to %s: %w", path, err)
	}
	return nil
}

// writeSuites writes reports in the form of JUnit as one document.
func writeSuites(w io.Writer, reports []string) error {
	const header = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	var suites []string
	for _, text := range reports {
		suites = append(suites, strings.TrimPrefix(text, header))
	}
	_, err := io.WriteString(w, header+"<testsuites>\n"+strings.Join(suites, "")+"</testsuites>\n")
	return err
}
