package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandOf finds a command of ours in a line of a page, whatever stands before it.
var commandOf = regexp.MustCompile(`(?:^|[\s|;&(])(?:bin/)?applianced((?: [^|;&)#>]+)?)`)

var span = regexp.MustCompile("`((?:sudo )?applianced [^`\n]+)`")

// commandLines gives the words behind applianced of each command that a page shows.
func commandLines(page string) (out [][]string) {
	inside := false
	page = strings.ReplaceAll(page, "\\\n", " ")
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside = !inside && (line == "```sh" || line == "```console")
			continue
		}

		shown := []string{}
		if inside {
			shown = append(shown, line)
		} else {
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				shown = append(shown, m[1])
			}
		}

		for _, s := range shown {
			for _, m := range commandOf.FindAllStringSubmatch(s, -1) {
				out = append(out, strings.Fields(m[1]))
			}
		}
	}

	return out
}

// TestPagesShowCommandsThatExist: each command that a page shows has its verb and
// flags; what they are given is not looked at.
func TestPagesShowCommandsThatExist(t *testing.T) {
	n := 0
	see := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		for _, words := range commandLines(string(text)) {
			n++
			if fault := unknown(words); fault != "" {
				t.Errorf("%s shows applianced %s: %s", path, strings.Join(words, " "), fault)
			}
		}
	}

	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
			see(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	see("../../README.md")
	see("../../examples/cloud-init/README.md")
	if n < 100 {
		t.Errorf("only %d found", n)
	}
}

// unknown says what of a command line is not there, "" for nothing.
func unknown(words []string) string {
	at := rootCommand()
	at.InitDefaultHelpCmd()
	at.InitDefaultVersionFlag()
	at.InitDefaultCompletionCmd()
	verbs, value := true, false // until the first argument; the value of a flag
	for _, w := range words {
		w = strings.Trim(w, `"'`)
		switch {
		case value:
			value = false
		case strings.HasPrefix(w, "-") && strings.Trim(w, "-") != "":
			flag, given := flagOf(at, w)
			if flag == nil {
				return "it has no flag " + w
			}
			value = !given && flag.NoOptDefVal == ""
		case !verbs || !at.HasSubCommands():
		default:
			next, _, err := at.Find([]string{w})
			takes := len(strings.Fields(at.Use)) > 1 // an argument
			switch {
			case err == nil && next != at:
				at = next
			case strings.ToUpper(w) != w && !takes: // VERB stands for any
				return "there is no verb " + w
			default:
				verbs = false
			}
		}
	}

	return ""
}

// flagOf finds a flag of a verb, and whether its value stands with it.
func flagOf(at *cobra.Command, word string) (flag *pflag.Flag, given bool) {
	at.InitDefaultHelpFlag()
	if name, long := strings.CutPrefix(word, "--"); long {
		name, _, given = strings.Cut(name, "=")
		return at.Flag(name), given
	}
	flag = at.Flags().ShorthandLookup(word[1:2])
	if flag == nil {
		flag = at.InheritedFlags().ShorthandLookup(word[1:2])
	}
	return flag, len(word) > 2
}

func TestUnknown(t *testing.T) {
	for line, fault := range map[string]string{
		"status --json": "", "config check x": "", "VERB --help": "", "--version": "", "setup start a.yaml": "", "logs master -n 5": "",
		"statsu": "no verb", "status --jsno": "no flag --jsno", "config chekc": "no verb", "logs master -q": "no flag -q",
	} {
		if got := unknown(strings.Fields(line)); fault == "" && got != "" ||
			fault != "" && !strings.Contains(got, fault) {
			t.Errorf("%s: %q, want %q", line, got, fault)
		}
	}
}
