// Package tutorial reads the commands and files of a page of the documentation and
// types them on machines, so that a tutorial that does not work fails a test.
//
// A comment before a fenced block says on which machines it is typed:
//
//	<!-- type: m1 m2 within=2m save=WORD -->
//
// A block of the kind console holds commands, each behind "$ ", and below each what
// it prints. Other blocks are files: their first line is "# " and the path. within
// lets the last command of a block be typed again until it prints what the page
// shows; save has WORD stand for the last line of its output in later blocks. A
// block that no test types says so, and why: <!-- type: none, REASON -->.
package tutorial

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A Step is a command or a file of a page.
type Step struct {
	Line    int           // of the page, at which its block begins
	On      []string      // names of machines
	Within  time.Duration // for how long it is typed again until it prints Want; 0: it is typed once
	Save    string        // what stands for the last line of its output in later steps
	Command string
	Want    []string // lines of the output; … stands for anything
	Path    string   // of a file, which has no command
	Text    string
}

// block is a fenced block with the comment before it.
type block struct {
	line     int
	comment  string // "": none
	language string
	lines    []string
}

var comment = regexp.MustCompile(`^<!-- type: (.*) -->$`)

// Read returns the steps of a page in their order.
func Read(page string) ([]Step, error) {
	blocks, err := blocks(page)
	if err != nil {
		return nil, err
	}
	var out []Step
	for _, b := range blocks {
		steps, err := b.steps()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", b.line, err)
		}
		out = append(out, steps...)
	}
	return out, nil
}

// blocks finds the fenced blocks. A comment is that of the next line.
func blocks(page string) (out []block, err error) {
	said := ""
	open := (*block)(nil)
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch {
		case open != nil && line == "```":
			out, open = append(out, *open), nil
		case open != nil:
			open.lines = append(open.lines, line)
		case strings.HasPrefix(line, "```"):
			open = &block{line: number, comment: said, language: strings.TrimPrefix(line, "```")}
			said = ""
		case said != "":
			return nil, fmt.Errorf("line %d: no block follows the comment %q", number, said)
		case comment.MatchString(line):
			said = comment.FindStringSubmatch(line)[1]
		case strings.Contains(line, "<!-- type:"):
			return nil, fmt.Errorf("line %d: write <!-- type: MACHINE --> on a line of its own", number)
		}
	}

	if open != nil {
		return nil, fmt.Errorf("line %d: the block does not end", open.line)
	}
	if said != "" {
		return nil, fmt.Errorf("line %d: no block follows the comment %q", number, said)
	}

	return out, nil
}

// steps returns what is typed for a block.
func (b block) steps() ([]Step, error) {
	switch {
	case b.comment == "" && b.language == "console":
		return nil, fmt.Errorf("no comment says on which machine it is typed, or why it is not")
	case b.comment == "", strings.HasPrefix(b.comment, "none, "):
		return nil, nil
	}

	common := Step{Line: b.line}
	for word := range strings.FieldsSeq(b.comment) {
		key, value, option := strings.Cut(word, "=")
		switch {
		case !option:
			common.On = append(common.On, word)
		case key == "save" && value != "":
			common.Save = value
		case key == "within":
			d, err := time.ParseDuration(value)
			if err != nil {
				return nil, err
			}
			common.Within = d
		default:
			return nil, fmt.Errorf("%q means nothing: within=2m, save=WORD", word)
		}
	}

	if len(common.On) == 0 {
		return nil, fmt.Errorf("the comment %q names no machine", b.comment)
	}
	if b.language == "console" {
		return b.commands(common)
	}

	return b.file(common)
}

// commands returns the commands of a console block; what the comment says of time
// and of words is for the last one.
func (b block) commands(common Step) (out []Step, err error) {
	for _, line := range b.lines {
		n := len(out) - 1
		switch command, typed := strings.CutPrefix(line, "$ "); {
		case typed:
			out = append(out, Step{Line: common.Line, On: common.On, Command: command})
		case n < 0:
			return nil, fmt.Errorf("%q comes before a command: begin with \"$ \"", line)
		case strings.HasSuffix(out[n].Command, `\`):
			out[n].Command += "\n" + line
		case strings.TrimSpace(line) != "":
			out[n].Want = append(out[n].Want, strings.TrimSpace(line))
		}
	}

	if len(out) == 0 {
		return nil, fmt.Errorf("it has no command")
	}

	last := &out[len(out)-1]
	last.Within, last.Save = common.Within, common.Save
	return out, nil
}

func (b block) file(s Step) ([]Step, error) {
	if s.Within != 0 || s.Save != "" {
		return nil, fmt.Errorf("a file has no output: leave within and save out")
	}
	path, named := "", false
	if len(b.lines) > 0 {
		path, named = strings.CutPrefix(b.lines[0], "# ")
	}
	if !named || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("the first line of a file is \"# \" and its path")
	}
	s.Path, s.Text = path, strings.Join(b.lines, "\n")+"\n"
	return []Step{s}, nil
}
