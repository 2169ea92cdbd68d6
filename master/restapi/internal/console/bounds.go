package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"saltern/internal/printable"
)

// Bounds of one page. Longer lists continue on further pages, or a note on the page states what is
// left out.
const (
	perPage    = 50   // keys, minions or jobs on a page
	perJobPage = 25   // minions of a job on a page
	maxKeys    = 1000 // keys in one confirmation
	// bytes of ids and fingerprints in one confirmation, as a form sends them: salt-api takes no larger form
	maxKeyBytes = 200 << 10
	maxJobs     = 500 // newest jobs that a page asks for
	// states of a minion on a page with several minions; on a page with one minion the bound is maxPage
	maxStates   = 100
	maxPage     = 400      // states on a page
	maxText     = 16 << 10 // bytes of one long text
	maxPageText = 96 << 10 // bytes of all long texts of a page
	maxName     = 200      // characters of an id, a name or a cell
	maxSentence = 600      // characters of a sentence of the master
	maxGrains   = 300
	maxTarget   = 64 << 10 // bytes of the field target, or arguments, of a form
	maxArgs     = 200      // arguments in a form, one a line
	maxPreview  = 200      // minions that the form lists before a run
)

// briefName returns an untrusted text as one line of at most maxName characters.
func briefName(s string) string { return printable.Brief(s, maxName) }

// briefText returns an untrusted sentence or list as one line of at most maxSentence characters.
func briefText(s string) string { return printable.Brief(s, maxSentence) }

// budget is what remains of a page's bounds: left is the number of bytes for long texts, states the
// number of states.
type budget struct{ left, states int }

func newBudget() *budget { return &budget{maxPageText, maxPage} }

// boundText is an untrusted text, cut to a bound.
type boundText struct {
	Text string
	Cut  int // bytes that were cut off
}

// Short reports whether the text stands in a line with other words.
func (t boundText) Short() bool {
	return t.Text != "" && t.Cut == 0 && len(t.Text) <= 60 && !strings.Contains(t.Text, "\n")
}

// boundedText makes an untrusted text of several lines safe, cuts it to the rest of the budget, and
// charges its bytes to the budget.
func (b *budget) boundedText(s string) boundText {
	limit := min(maxText, max(b.left, 200))
	t := cutText(s, limit)
	b.left -= len(t)
	return boundText{printable.Text(t), len(s) - len(t)}
}

// cutText returns the beginning of a text, at most n bytes, without an incomplete character at its
// end.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// pager describes one page of a long list.
type pager struct {
	From, To, Of int // first and last entry on the page, counted from 1, and number of all entries; 0, 0: empty list
	Page, Pages  int
	Prev, Next   string // URLs of the pages before and after; "" for none
}

// pageOf returns the indices lo and hi of the part of a list of n entries that a query asks for,
// and its pager. per is the number of entries on a page, path the path of the page's URL.
func pageOf(n, per int, path string, q url.Values) (lo, hi int, p pager) {
	pages := max((n+per-1)/per, 1)
	page, err := strconv.Atoi(q.Get("page"))
	if err != nil || page < 1 {
		page = 1
	}

	page = min(page, pages)
	lo, hi = (page-1)*per, min(page*per, n)
	at := func(page int) string {
		if page < 1 || page > pages {
			return ""
		}

		next := url.Values{}
		for k, v := range q {
			next[k] = v
		}

		next.Set("page", strconv.Itoa(page))
		return path + "?" + next.Encode()
	}

	p = pager{
		From:  min(lo+1, n),
		To:    hi,
		Of:    n,
		Page:  page,
		Pages: pages,
		Prev:  at(page - 1),
		Next:  at(page + 1),
	}

	return lo, hi, p
}

// countWord returns a number and the noun for it.
func countWord(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// textLines returns the lines of a text, trimmed and without empty ones.
func textLines(s string) (out []string) {
	for l := range strings.SplitSeq(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}
