package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/durable"
)

// MaxRecords bounds the records of one answer.
const MaxRecords = 20_000

// Query selects records. An empty field matches every record.
type Query struct {
	Since   time.Time
	User    string // the actor, or the user as whom he acted
	Action  string // a shell pattern: key.*
	Node    string // name of a node; used only when several nodes are asked
	Last    int    // how many of the newest records; 0 means MaxRecords
	Acts    bool   // leave out calls that only read and were permitted
	Refused bool   // only acts that were refused or failed
}

// Page holds the records of one node.
type Page struct {
	Records []Record `json:"records"`           // the oldest first
	More    bool     `json:"more,omitempty"`    // older records also match
	Damaged int      `json:"damaged,omitempty"` // lines that cannot be read
}

// List holds the records of a cluster's nodes.
type List struct {
	Page
	// Unasked are the nodes that did not answer, each with the reason.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// Values returns the query in the form that [ParseQuery] reads.
func (q Query) Values() url.Values {
	v := url.Values{}
	for k, text := range map[string]string{"user": q.User, "action": q.Action, "node": q.Node} {
		if text != "" {
			v.Set(k, text)
		}
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.Last > 0 {
		v.Set("last", strconv.Itoa(q.Last))
	}
	if q.Acts {
		v.Set("acts", "1")
	}
	if q.Refused {
		v.Set("refused", "1")
	}
	return v
}

// ParseQuery reads the query of an HTTP request.
func ParseQuery(v url.Values) (q Query, err error) {
	q = Query{
		User:    v.Get("user"),
		Action:  v.Get("action"),
		Node:    v.Get("node"),
		Acts:    v.Get("acts") != "",
		Refused: v.Get("refused") != "",
	}
	if len(q.User)+len(q.Action)+len(q.Node) > 3*maxName {
		return q, errors.New("the question is too long")
	}

	if t := v.Get("since"); t != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, t); err != nil {
			return q, errors.New("since is not a time of RFC 3339")
		}
	}

	if t := v.Get("last"); t != "" {
		if q.Last, err = strconv.Atoi(t); err != nil || q.Last < 0 {
			return q, errors.New("last is not a number of records")
		}
	}

	if _, err := path.Match(q.Action, ""); err != nil {
		return q, fmt.Errorf("action is not a pattern: %.40q", q.Action)
	}

	return q, nil
}

func (q Query) lastOrMost() int { return min(cmp.Or(q.Last, MaxRecords), MaxRecords) }

// matches reports whether the query selects a record. It does not check Node, Last or where the
// record is stored.
func (q Query) matches(r Record) bool {
	if r.Time.Before(q.Since) || q.User != "" && q.User != r.User && q.User != r.As {
		return false
	}
	if q.Acts && r.Reads() || q.Refused && !r.Bad() && r.Action != moreAction {
		return false
	}
	forVerify := r.Action == fileAction || r.Action == headsAction
	if forVerify && !strings.HasPrefix(q.Action, "audit.") {
		return false
	}
	return q.Action == "" || q.matchesAction(r.Action) || slices.ContainsFunc(slices.Collect(maps.Keys(r.Kinds)),
		func(kind string) bool {
			action, _, _ := strings.Cut(kind, " ")
			return q.matchesAction(action)
		})
}

func (q Query) matchesAction(action string) bool {
	ok, err := path.Match(q.Action, action)
	return err == nil && ok
}

// Read returns the newest records that q selects in dirs, the folders of the node with the name
// node. It skips missing folders.
func Read(ctx context.Context, node string, q Query, dirs ...string) (Page, error) {
	var found newest
	for _, dir := range dirs {
		for _, b := range booksOf(dir) {
			if err := b.readInto(ctx, node, q, &found); err != nil {
				return Page{}, fmt.Errorf("read the audit records: %w", err)
			}
		}
	}
	return Page{Records: found.records, Damaged: found.damaged}.Newest(q.lastOrMost()), nil
}

// newest collects the newest records that a query selects.
type newest struct {
	records []Record
	damaged int
}

func (b book) readInto(ctx context.Context, node string, q Query, into *newest) error {
	files, err := b.fileNames()
	if err != nil {
		return err
	}

	own := newest{}
	for _, name := range files {
		f, st, err := durable.Open(name, durable.Refuse)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the current file, or a file removed after the listing
		}
		if err != nil {
			return err
		}

		if !st.ModTime().Before(q.Since) {
			err = own.scanFile(ctx, f, node, q)
		}

		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}

	into.records = append(into.records, own.records...)
	into.damaged += own.damaged
	return nil
}

// scanFile reads the lines of a file. It stops at twice the largest size of a file, because other
// programs may append to the file while it reads.
func (n *newest) scanFile(ctx context.Context, f *os.File, node string, q Query) error {
	lines := bufio.NewReaderSize(&bounded{f, 2 * largestPart}, 64<<10)
	keep := q.lastOrMost() + 1 // one more record than requested shows whether there are older records
	for i := 0; ; i++ {
		line, err := lines.ReadSlice('\n')
		if i%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}

		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			n.damaged++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		case len(bytes.TrimSpace(line)) > 0:
			n.takeLine(line, node, q)
		}

		if len(n.records) >= 2*keep {
			n.records = slices.Delete(n.records, 0, len(n.records)-keep)
		}

		if err != nil { // the end of the file, or the bound on reading
			return nil
		}
	}
}

// decode returns the record in a line. If the line is no record, the action is empty.
func decode(line []byte) Record {
	var r Record
	if len(line) > maxLine || json.Unmarshal(line, &r) != nil || r.Time.IsZero() {
		return Record{}
	}
	return r.bounded()
}

// takeLine decodes one line and keeps the record if the query selects it.
func (n *newest) takeLine(line []byte, node string, q Query) {
	r := decode(line)
	if r.Action == "" {
		n.damaged++
		return
	}
	if !q.matches(r) {
		return
	}
	r.Node = node // The record comes from this node's disk, whatever node it names.
	n.records = append(n.records, r)
}

// bounded is a reader of a file that ends after left bytes.
type bounded struct {
	f    *os.File
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fs.ErrClosed
	}
	n, err := b.f.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Newest returns p with only its n newest records, sorted by time.
func (p Page) Newest(n int) Page {
	slices.SortStableFunc(p.Records, func(a, b Record) int { return a.Time.Compare(b.Time) })
	if over := len(p.Records) - n; over > 0 {
		p.Records, p.More = p.Records[over:], true
	}
	if p.Records == nil {
		p.Records = []Record{}
	}
	return p
}

// Bounded returns a page that came from another node, cut to the bounds and safe to show.
func (p Page) Bounded(node string) Page {
	if over := len(p.Records) - MaxRecords; over > 0 {
		p.Records, p.More = p.Records[over:], true
	}
	for i := range p.Records {
		p.Records[i] = p.Records[i].bounded()
		p.Records[i].Node = node
	}
	p.Damaged = max(p.Damaged, 0)
	return p
}
