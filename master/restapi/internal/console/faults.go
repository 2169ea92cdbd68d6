package console

import (
	"context"
	"net/http"
	"regexp"
	"slices"
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

// faultOf names the subject of a problem, and its cause. Each may be "".
type faultOf struct{ Subject, Cause string }

// Named reports whether the title names all that the problem is about.
func (f fault) Named() bool {
	for _, of := range f.Of {
		if !strings.Contains(f.Title, of.Subject) && !strings.Contains(f.Title, programWord(of.Subject)) {
			return false
		}
	}
	return true
}

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

// subjectMark stands in a title in place of what the problem is about.
const subjectMark = "…"

// shownFaults is how many faults stand on the page before the others are folded.
const shownFaults = 3

// faultsOf returns the problems, those of the same kind as one, in the order of the first of each kind.
func (c *Console) faultsOf(found []control.NodeProblem) (out []fault) {
	codes := codeRows()
	at := map[[3]string]int{} // index in out, by code, title without its subject, and next step
	for _, p := range found {
		kind := p.Title
		if p.Subject != "" {
			kind = strings.Replace(p.Title, p.Subject, subjectMark, 1)
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
		f.Of = append(f.Of, of)
		f.Title = commonTitle(kind, f.Of)
		if since := c.moment(p.Since); since.ISO != "" && since.ISO < f.Since.ISO {
			f.Since = since
		}
	}
	return out
}

// commonTitle returns the title of several problems of a kind, whose subject stands at a mark in it. A title that
// begins with its subject is followed by the subjects, others contain them.
func commonTitle(kind string, of []faultOf) string {
	if rest, ok := strings.CutPrefix(kind, subjectMark+" "); ok {
		return capital(rest)
	}

	var subjects []string
	for _, o := range of {
		subjects = append(subjects, programWord(o.Subject))
	}
	return strings.Replace(kind, subjectMark, strings.Join(subjects, ", "), 1)
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

// textPiece is a part of a text: a command or another piece of code, a link to the explanation of a code, or words.
type textPiece struct {
	Text string
	Code bool
	URL  string // "" unless the text is the code of a problem
}

// problemCode matches the code of a problem in a text.
var problemCode = regexp.MustCompile(`\bSCA-[0-9]{3}\b`)

// pieces returns the parts of a text with code between backquotes.
func (c *Console) pieces(text string) (out []textPiece) {
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			out = append(out, textPiece{Text: part, Code: true})
			continue
		}
		out = append(out, c.withCodes(part)...)
	}
	return out
}

// withCodes returns the parts of a text, of which the codes of problems lead to the page that explains them.
func (c *Console) withCodes(text string) (out []textPiece) {
	codes, shown := codeRows(), 0
	for _, at := range problemCode.FindAllStringIndex(text, -1) {
		code := text[at[0]:at[1]]
		if _, explained := codes.place[code]; explained {
			out = append(out, textPiece{Text: text[shown:at[0]]}, textPiece{Text: code, URL: c.base + "/codes#" + code})
			shown = at[1]
		}
	}
	return append(out, textPiece{Text: text[shown:]})
}

// command matches a command in a text for people: a program and its arguments, up to a word of the sentence.
var command = regexp.MustCompile(`\b(?:sudo )?(?:applianced|systemctl|journalctl|salt-call|salt-key|salt-run|salt|timedatectl|chronyc|sshd|aa-status|ip|ss|findmnt|gluster|rm)` +
	`(?: [A-Za-z0-9@/_=*…-]+(?:\.[A-Za-z0-9@/_=*…-]+)*)*`)

// sentenceWords are words that no command of ours has as an argument.
var sentenceWords = strings.Fields("after again and asks at by erases finds for from goes here in is it load loads makes may no on or says show shows starts tells there to with")

// commands returns a text with its commands between backquotes, as [pieces] reads them.
func commands(text string) string {
	if strings.Contains(text, "`") {
		return text
	}
	return command.ReplaceAllStringFunc(text, func(found string) string {
		words := strings.Fields(found)
		end := slices.IndexFunc(words, func(word string) bool { return slices.Contains(sentenceWords, word) })
		if end < 0 {
			end = len(words)
		}
		if end < 2 {
			return found
		}
		return "`" + strings.Join(words[:end], " ") + "`" + strings.TrimPrefix(found, strings.Join(words[:end], " "))
	})
}

func showCodes(c *Console, _ context.Context, v *visit) (Answer, error) {
	return c.render(v, "codes", http.StatusOK, page{Title: "Codes of problems", Data: codeRows().rows})
}
