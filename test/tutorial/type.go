package tutorial

import (
	"context"
	"fmt"
	"strings"
	"time"

	"saltern/internal/pause"
)

// A Machine is where steps are typed.
type Machine interface {
	// Run types a command of shell and returns all that it printed; the error is
	// that of its exit status.
	Run(ctx context.Context, command string) (string, error)
	// Put writes a file.
	Put(path, text string) error
}

// between is how long a command that does not print what the page shows rests.
const between = 200 * time.Millisecond

// Type types the steps of a page on its machines, one after another. said is told of
// each command, how often it was typed and how long that took.
func Type(
	ctx context.Context,
	steps []Step,
	machines map[string]Machine,
	said func(where, command string, times int, took time.Duration),
) error {
	words := map[string]string{}
	for _, s := range steps {
		for _, name := range s.On {
			m, ok := machines[name]
			if !ok {
				return fmt.Errorf("line %d: there is no machine %q", s.Line, name)
			}

			began := time.Now()
			times, output, err := s.do(ctx, m, words)
			if err != nil {
				return fmt.Errorf("line %d, on %s: %w", s.Line, name, err)
			}

			if s.Save != "" {
				words[s.Save] = lastLine(output)
			}

			if s.Command != "" {
				said(name, s.Command, times, time.Since(began))
			}
		}
	}

	return nil
}

// do types one step until it prints what it should, and returns how often it was
// typed and what it printed.
func (s Step) do(ctx context.Context, m Machine, words map[string]string) (times int, output string, err error) {
	if s.Path != "" {
		return 0, "", m.Put(s.Path, replace(s.Text, words))
	}

	ctx, cancel := context.WithTimeout(ctx, max(s.Within, 5*time.Minute))
	defer cancel()
	for began := time.Now(); ; {
		times++
		output, err = m.Run(ctx, replace(s.Command, words))
		if err == nil {
			err = s.shown(output)
		}

		if err == nil || time.Since(began) >= s.Within {
			break
		}

		if stop := pause.For(ctx, between); stop != nil {
			break
		}
	}

	if err != nil {
		return times, output, fmt.Errorf("%s: %w; it printed\n%s", s.Command, err, output)
	}

	return times, output, nil
}

// shown reports what of the page an output does not have. The lines of the page are
// looked for in their order; others may stand between them.
func (s Step) shown(output string) error {
	rest := strings.Split(output, "\n")
	for _, want := range s.Want {
		i := 0
		for ; i < len(rest) && !fits(want, strings.TrimSpace(rest[i])); i++ {
		}
		if i == len(rest) {
			return fmt.Errorf("the page shows %q there", want)
		}
		rest = rest[i+1:]
	}
	return nil
}

// fits reports whether a line is one of the page, in which … stands for anything.
func fits(want, line string) bool {
	parts := strings.Split(want, "…")
	if len(parts) == 1 {
		return want == line
	}

	first, last := parts[0], parts[len(parts)-1]
	if len(line) < len(first)+len(last) || !strings.HasPrefix(line, first) || !strings.HasSuffix(line, last) {
		return false
	}

	line = line[len(first) : len(line)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(line, p)
		if !found {
			return false
		}
		line = after
	}

	return true
}

func replace(text string, words map[string]string) string {
	for w, v := range words {
		text = strings.ReplaceAll(text, w, v)
	}
	return text
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
