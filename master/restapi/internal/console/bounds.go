package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"saltern/internal/printable"
)

// Bounds of one page. Beyond them there are more pages, or a note that says what is left out.
const (
	perPage     = 50       // keys, minions, jobs
	perJobPage  = 25       // minions of a job
	maxJobs     = 500      // jobs that are asked for, the newest
	maxStates   = 100      // states of one minion among others; alone it may have maxPage
	maxPage     = 400      // states of a page
	maxText     = 16 << 10 // bytes of one value
	maxPageText = 96 << 10 // bytes of all values of a page
	maxName     = 200      // characters of an id, a name, a cell
	maxGrains   = 300
	maxTarget   = 64 << 10 // bytes of a field of a form: target, arguments
	maxArgs     = 200      // lines
	maxPreview  = 200      // minions that are listed before a run
)

// briefName makes foreign text one bounded line.
func briefName(s string) string { return printable.Brief(s, maxName) }

// budget is how many bytes of long texts, and how many states, a page may still show.
type budget struct{ left, states int }

func newBudget() *budget { return &budget{maxPageText, maxPage} }

// boundText is a foreign text within the bounds.
type boundText struct {
	Text string
	Cut  int // bytes that are left out
}

// boundedText makes a foreign text of several lines safe, and charges it.
func (b *budget) boundedText(s string) boundText {
	limit := min(maxText, max(b.left, 200))
	t := cutText(s, limit)
	b.left -= len(t)
	return boundText{printable.Text(t), len(s) - len(t)}
}

// cutText returns the beginning of a text, at most n bytes, without a half character.
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

// pageOf returns the part of a list of n that a query asks for, and its pager. path is the address
// of the page without its query.
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

// countWord returns a number with its noun.
func countWord(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// textLines returns the lines of a text that are not empty.
func textLines(s string) (out []string) {
	for l := range strings.SplitSeq(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}
