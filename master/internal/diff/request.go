package diff

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"saltern/master/runner"
	"saltern/master/value"
)

// What is one side of a comparison: a ref, a folder, or nothing for what is served now.
type What struct {
	Ref    string // branch, tag or commit
	Folder string // path of a folder that takes the place of the roots of an environment
}

func (w What) String() string {
	switch {
	case w.Folder != "":
		return w.Folder
	case w.Ref != "":
		return w.Ref
	}
	return "what is served"
}

// Request asks for a comparison.
type Request struct {
	From, To   What
	Remote     string // URL or name of the git remote; "": all that have the ref
	Into       string // branch of which the ref takes the place; "": the remote's first
	Env        string // environment of which a folder takes the place; "": base
	Target     any    // which minions
	TargetType string
	States     bool // compare what a highstate would render, not pillars
	Saltenv    string
	Pillarenv  string
	Form       string // "": data; or text, colour, junit
	WithJUnit  bool   // the answer has the report in the form of JUnit besides
	readers    bool   // find readers, and compare nothing
}

// The names of the runners.
const (
	pillarDiff = "pillar.diff"
	topDiff    = "top.diff"
)

// maxArgument bounds an argument, in bytes.
const maxArgument = 4096

// parameters are the names of the arguments, in the order of positional ones.
const parameters = "ref tgt tgt_type from folder remote into env saltenv pillarenv format"

// wrongArgument returns the error of arguments that a runner does not take.
type wrongArgument func(form string, a ...any) error

// readArguments reads the arguments of a runner, whose names are in parameters. It returns all that
// were given, and those that are texts.
func readArguments(parameters string, args []any, named *value.Map, wrong wrongArgument) (
	given map[string]any,
	texts map[string]string,
	err error,
) {
	known := strings.Fields(parameters)
	given = map[string]any{}
	if len(args) > len(known) {
		return nil, nil, wrong("takes %d arguments but %d were given", len(known), len(args))
	}
	for i, v := range args {
		given[known[i]] = v
	}
	for k, v := range named.All() {
		key, _ := k.(string)
		switch {
		case strings.HasPrefix(key, "__"):
		case !slices.Contains(known, key):
			return nil, nil, wrong("got an unexpected keyword argument '%.40s'", key)
		default:
			given[key] = v
		}
	}

	texts = map[string]string{}
	for key, v := range given {
		if v == nil || key == "tgt" {
			continue
		}
		text := value.StrMax(v, maxArgument)
		if key != "block" {
			if text, err = runner.TextArgument(key, v); err != nil {
				return nil, nil, wrong("%v", err)
			}
		}
		if len(text) > maxArgument || !utf8.ValidString(text) || strings.ContainsAny(text, "\x00\n") {
			return nil, nil, wrong("%s is too long, or no plain text", key)
		}
		texts[key] = text
	}
	return given, texts, nil
}

// requestOf reads the arguments of a comparison.
func requestOf(name string, args []any, named *value.Map) (Request, error) {
	wrong := func(form string, a ...any) error {
		usage := "salt-run " + name + " [ref=]REF [tgt=MINIONS tgt_type=TYPE from=REF folder=PATH remote=NAME into=BRANCH env=ENV saltenv=ENV pillarenv=ENV format=text|junit|text,junit]"
		return &runner.ArgumentError{Reason: fmt.Sprintf(form, a...), Usage: usage}
	}
	given, texts, err := readArguments(parameters, args, named, wrong)
	if err != nil {
		return Request{}, err
	}

	r := Request{
		From:       What{Ref: texts["from"]},
		To:         What{Ref: texts["ref"], Folder: texts["folder"]},
		Remote:     texts["remote"],
		Into:       texts["into"],
		Env:        texts["env"],
		Target:     given["tgt"],
		TargetType: texts["tgt_type"],
		States:     name == topDiff,
		Saltenv:    texts["saltenv"],
		Pillarenv:  texts["pillarenv"],
	}
	r.Form, r.WithJUnit = strings.CutSuffix(texts["format"], ",junit")
	if r.WithJUnit && r.Form == "data" {
		r.Form = ""
	}
	if r.To == (What{}) {
		return Request{}, wrong("%v", errNothing)
	}
	if r.To.Ref != "" && r.To.Folder != "" {
		return Request{}, wrong("ref and folder exclude each other")
	}
	if !slices.Contains([]string{"", "text", "colour", "junit"}, r.Form) {
		return Request{}, wrong("format is text, colour or junit, or one of data, text and colour with ,junit")
	}
	if r.Target == nil {
		r.Target = "*"
	}
	if r.TargetType == "" {
		r.TargetType = "glob"
	}
	return r, nil
}
