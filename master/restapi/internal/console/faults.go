package console

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"saltern/docs"
	"saltern/internal/control"
)

// fault is a problem of the nodes, or several that differ only in what they are about.
type fault struct {
	Code, Title, Next string
	Severity          string // class in the style sheet
	Explained         bool   // the page of codes has the code
	Since             moment
	Of                []faultOf
}

// faultOf is what a problem is about, and its cause. Each may be "".
type faultOf struct{ Subject, Cause string }

// Named reports whether the title names what the only problem is about.
func (f fault) Named() bool { return len(f.Of) == 1 && strings.Contains(f.Title, f.Of[0].Subject) }

// Causes returns the causes, each once.
func (f fault) Causes() (out []string) {
	seen := map[string]bool{"": true}
	for _, of := range f.Of {
		if !seen[of.Cause] {
			seen[of.Cause] = true
			out = append(out, of.Cause)
		}
	}
	return out
}

// shownFaults is how many faults stand on the page before the others are folded.
const shownFaults = 3

// faultsOf returns the problems, those of the same kind as one, in the order of the first of each kind.
func (c *Console) faultsOf(found []control.NodeProblem) (out []fault) {
	codes := codeRows()
	at := map[[3]string]int{} // index in out, by code, title without its subject, and next step
	for _, p := range found {
		kind := p.Title
		if p.Subject != "" {
			kind = strings.Replace(p.Title, p.Subject, "…", 1)
		}
		of := faultOf{p.Subject, p.Cause}
		key := [3]string{p.Code, kind, p.Next}
		i, again := at[key]
		if !again {
			at[key] = len(out)
			_, explained := codes.place[p.Code]
			out = append(out, fault{
				Code:      p.Code,
				Title:     p.Title,
				Next:      p.Next,
				Severity:  p.Severity,
				Explained: explained,
				Since:     c.moment(p.Since),
				Of:        []faultOf{of},
			})
			continue
		}

		f := &out[i]
		f.Title = kind
		f.Of = append(f.Of, of)
		if since := c.moment(p.Since); since.ISO != "" && since.ISO < f.Since.ISO {
			f.Since = since
		}
	}
	return out
}

// programWord returns the console's name of a program or service of a node, and other texts as they are.
func programWord(name string) string {
	switch name {
	case "master", "salt-master":
		return "master"
	case "lb", "applianced lb", "saltern-lb":
		return "balancer"
	case "api", "salt-api":
		return "API"
	}
	return name
}

// codeRow is a code of a problem as the documentation explains it. Each text may hold code between backquotes.
type codeRow struct{ Code, Severity, Text, Cause, Next string }

type codeTable struct {
	rows  []codeRow
	place map[string]int // index in rows
}

// codeRows returns the codes that the documentation explains.
var codeRows = sync.OnceValue(func() (t codeTable) {
	t.place = map[string]int{}
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for line := range strings.Lines(docs.Troubleshooting) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || !strings.HasPrefix(line, "| SCA-") {
			continue
		}
		for i := range cells {
			cells[i] = link.ReplaceAllString(strings.TrimSpace(cells[i]), "$1")
		}
		t.place[cells[0]] = len(t.rows)
		t.rows = append(t.rows, codeRow{cells[0], cells[1], cells[2], cells[3], cells[4]})
	}
	return t
})

// textPiece is a part of a text, which is code or not.
type textPiece struct {
	Text string
	Code bool
}

// pieces returns the parts of a text with code between backquotes.
func pieces(text string) (out []textPiece) {
	for i, part := range strings.Split(text, "`") {
		if part != "" {
			out = append(out, textPiece{part, i%2 == 1})
		}
	}
	return out
}

func showCodes(c *Console, _ context.Context, v *visit) (Answer, error) {
	return c.render(v, "codes", http.StatusOK, page{Title: "Codes of problems", Data: codeRows().rows})
}
