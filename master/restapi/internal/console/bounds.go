package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"saltern/internal/printable"
)

// Bounds of what one page shows. Beyond them there are more pages, or a note that
// says what is left out.
const (
	perPage     = 50       // keys, minions, jobs
	perJobPage  = 25       // minions of a job
	maxJobs     = 500      // the newest that are asked for
	maxStates   = 100      // of one minion beside others; alone all that a page may have
	maxPage     = 400      // states of a page
	maxText     = 16 << 10 // bytes of one value
	maxPageText = 96 << 10 // bytes of all values of a page
	maxName     = 200      // characters of an id, a name, a cell
	maxGrains   = 300
	maxTarget   = 64 << 10 // bytes of what a form says: target, arguments
	maxArgs     = 200      // lines
	maxPreview  = 200      // minions that are named before a run
)

// briefName makes foreign text one bounded line.
func briefName(s string) string { return printable.Brief(s, maxName) }

// budget is what a page may still show of long texts, and of states.
type budget struct{ left, states int }

func newBudget() *budget { return &budget{maxPageText, maxPage} }

// boundText is a text from elsewhere, within the bounds.
type boundText struct {
	Text string
	Cut  int // bytes that are left out
}

// boundedText makes a foreign text of several lines safe and charges it.
func (b *budget) boundedText(s string) boundText {
	limit := min(maxText, max(b.left, 200))
	t := cutText(s, limit)
	b.left -= len(t)
	return boundText{printable.Text(t), len(s) - len(t)}
}

// cutText is the beginning of a text, at most n bytes and no half character.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// pager is one page of a long list.
type pager struct {
	From, To, Of int // 1-based; 0, 0 of nothing
	Page, Pages  int
	Prev, Next   string // addresses; "" for none
}

// pageOf is the part of a list of n that a query asks for, and its pager. path is the
// address of the page without its query.
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

// countWord writes a number with its noun.
func countWord(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// textLines are the lines of a text that say something.
func textLines(s string) (out []string) {
	for l := range strings.SplitSeq(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}
