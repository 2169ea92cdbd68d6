package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/internal/printable"
	"saltern/master/client"
	"saltern/master/output"
	"saltern/master/value"
)

// returnOptions returns the output options for returns. With --state-output=filter the options
// include the function's keyword arguments exclude and terse.
func (s *saltCall) returnOptions() output.Options {
	o := s.outputOptions()
	for _, a := range s.req.Arg {
		m, ok := a.(*value.Map)
		if !ok {
			continue
		}

		if _, ok := m.Get("__kwarg__"); !ok {
			continue
		}

		if _, ok := m.Get("exclude"); ok {
			o.StateExclude = textList(m, "exclude")
		}

		if _, ok := m.Get("terse"); ok {
			o.StateTerse = textList(m, "terse")
		}
	}

	return o
}

func (s *saltCall) returned(r client.Return, o output.Options) error {
	if !r.HasRet {
		return nil
	}
	if s.fun == "sys.doc" {
		s.seen = append(s.seen, r)
		return nil
	}
	code := max(r.Code(), 0)
	s.codes = append(s.codes, code)
	s.seen = append(s.seen, r)
	if s.bar != nil {
		if !r.Missing {
			s.bar.add()
		}
		return nil
	}
	return s.display(value.NewMap(r.ID, r.Ret), r.Out, code, o)
}

func (s *saltCall) finish(o output.Options) error {
	if s.fun == "sys.doc" {
		return s.printDocs(o)
	}
	if s.bar != nil || s.values.Bool("cli_summary") && s.values.Get("output") == nil {
		s.summary()
	}
	for _, c := range s.codes {
		if c != 0 {
			fmt.Fprintln(s.stderr, "ERROR: Minions returned with non-zero exit code")
			return exit(exitGeneric)
		}
	}
	return nil
}

// summary prints how many minions returned (salt/cli/salt.py
// _print_returns_summary).
func (s *saltCall) summary() {
	var returned int
	var silent, gone, failed []string
	for _, r := range s.seen {
		text, _ := r.Ret.(string)
		switch {
		case !strings.HasPrefix(text, "Minion did not return"):
			returned++
			if r.Code() != 0 {
				failed = append(failed, r.ID)
			}
		case strings.Contains(text, "Not connected"):
			gone = append(gone, r.ID)
		default:
			silent = append(silent, r.ID)
		}
	}

	missing := len(s.seen) - returned
	line := strings.Repeat("-", 43)
	s.println("\n\n" + line + "\nSummary\n" + line)
	s.println(fmt.Sprintf("# of minions targeted: %d\n# of minions returned: %d\n# of minions that did not return: %d\n# of minions with errors: %d",
		len(s.seen), returned, missing, len(failed)))

	if s.values.Bool("verbose") {
		for _, l := range []struct {
			text string
			ids  []string
		}{
			{"Minions not connected: ", gone},
			{"Minions not responding: ", silent},
			{"Minions with failures: ", failed},
		} {
			if len(l.ids) > 0 {
				s.println(l.text + strings.Join(l.ids, " "))
			}
		}
	}

	s.println(line)
}

// printDocs prints the documentation that sys.doc gathered.
func (s *saltCall) printDocs(o output.Options) error {
	if len(s.seen) == 0 {
		fmt.Fprintln(s.stderr, "No minions found to gather docs from")
		return exit(exitNoReturn)
	}

	docs := map[string]any{}
	for _, r := range s.seen {
		m, ok := r.Ret.(*value.Map)
		if !ok {
			continue
		}

		for k, d := range m.All() {
			name := value.Str(k)
			if _, have := docs[name]; !have && d != nil && d != "" {
				docs[name] = d
			}
		}
	}

	names := slices.Sorted(maps.Keys(docs))
	for _, n := range names {
		if s.values.Str("output") != "" {
			if err := s.display(value.NewMap(n, docs[n]), "nested", 0, o); err != nil {
				return err
			}
			continue
		}
		s.println(printable.Line(n) + ":\n" + printable.Text(value.Str(docs[n])) + "\n")
	}

	return nil
}
