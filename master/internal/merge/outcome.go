package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"saltern/internal/printable"
	"saltern/master/internal/diff"
	"saltern/master/internal/merge/forge"
	"saltern/master/internal/merge/options"
)

// outcome is the result of comparing a commit. The description has numbers only, and no text of a ref.
type outcome struct {
	state       forge.State
	description string
	texts       []string // reports
}

// Names of the parts.
const (
	pillars = "pillars"
	states  = "states"
)

// part is the result of one comparison: of pillars, or of states.
type part struct {
	name    string
	summary diff.Summary
	text    string
}

// judge returns the outcome of the parts, by what the entry makes a failure.
func judge(parts []part, to *options.Report) outcome {
	out := outcome{state: forge.Success}
	var words []string
	for _, p := range parts {
		s := p.summary
		if s.Minions == 0 {
			return outcome{state: forge.Error, description: "not compared: the master knows the grains of no minion"}
		}
		if s.Broken > 0 || s.Untold > 0 || s.More || to.Fails && s.Differ > 0 {
			out.state = forge.Failure
		}
		words = append(words, p.name+": "+numbers(s))
		out.texts = append(out.texts, p.text)
	}

	// Both comparisons are of the same minions.
	if unknown := parts[0].summary.Unknown; unknown > 0 {
		words = append(words, fmt.Sprintf("%d not compared", unknown))
		if !to.WithoutGrains {
			out.state = forge.Failure
		}
	}
	if left := parts[0].summary.LeftOut; left > 0 {
		words = append(words, fmt.Sprintf("%d ext_pillar left out", left))
	}
	out.description = strings.Join(words, "; ")
	return out
}

// numbers returns what a summary says, in few words.
func numbers(s diff.Summary) string {
	words := []string{fmt.Sprintf("same on %d", s.Minions)}
	if s.Differ > 0 {
		words[0] = fmt.Sprintf("%d of %d differ", s.Differ, s.Minions)
		if s.Groups > 1 {
			words[0] += fmt.Sprintf(" (%d groups)", s.Groups)
		}
	}
	if s.Broken > 0 {
		words = append(words, fmt.Sprintf("%d with new errors", s.Broken))
	}
	switch untold := s.Untold + s.SameText; {
	case s.More:
		words = append(words, fmt.Sprintf("over %d SLS untold", untold))
	case untold > 0:
		words = append(words, fmt.Sprintf("%d SLS untold", untold))
	}
	return strings.Join(words, ", ")
}

// unable returns the outcome of an error that will not pass. The text of most errors may hold what a stranger
// has written, so only the log has it.
func unable(err error) outcome {
	text := "not compared: see the log of the master"
	switch {
	case errors.Is(err, diff.ErrNoRef):
		text = "not compared: the commit is gone, or takes the place of no branch that is served (into)"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, diff.ErrLate):
		text = "not compared: it took too long (saltern_diff_timeout)"
	case errors.Is(err, errNeverEnds):
		text = "not compared: the comparison has never come to an end"
	}
	return outcome{state: forge.Error, description: text}
}

// errNeverEnds means that the master has died while it compared a commit, each time.
var errNeverEnds = errors.New("the comparison was begun too often")

// comment returns the comment on a merge request, in Markdown, or "".
func (o outcome) comment(to *options.Report, commit, target string) string {
	if to.Comment == options.NoComment || to.Comment == "" {
		return ""
	}

	var b strings.Builder
	fmt.Fprintf(&b, "**%s** of commit %.12s: %s\n\n%s\n", plain(to.Context), commit, o.state, o.description)
	if target != "" {
		fmt.Fprintf(&b, "\n[The whole report](%s)\n", target)
	}
	if to.Comment != options.Changes {
		return b.String()
	}

	left := forge.MaxComment - b.Len() - 200
	for _, text := range o.texts {
		text = fenced(text, left/2)
		b.WriteString("\n" + text)
		left -= len(text)
	}
	return b.String()
}

// plain returns a text without the characters by which Markdown begins anything.
func plain(text string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("`*_[]()<>@#!|\\~", c) || printable.Unsafe(c) {
			return '-'
		}
		return c
	}, text)
}

// fenced returns a report as a block of code, in which servers render and obey nothing: no mention,
// link, HTML or command. The report cannot end the block, because it gets no backtick. It is cut to
// about limit bytes.
func fenced(text string, limit int) string {
	text = strings.NewReplacer("`", "'", "@", "＠").Replace(printable.Text(text))
	lines := strings.SplitAfter(text, "\n")
	kept := 0
	size := 0
	for kept < len(lines) && size+len(lines[kept]) <= limit {
		size += len(lines[kept])
		kept++
	}

	cut := ""
	if kept < len(lines) {
		cut = fmt.Sprintf("… and %d more lines\n", len(lines)-kept)
	}
	return "```text\n" + strings.TrimRight(strings.Join(slices.Clone(lines[:kept]), ""), "\n") + "\n" + cut + "```\n"
}
