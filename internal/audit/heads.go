package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/durable"
)

// A head is the number and the hash of the newest record of a book. Each node sends its heads to
// the other nodes, which record them, and writes them to the system's log. If a chain ends before a
// head that others have recorded, or has another hash at that number, it was cut off or computed
// again.

// headsAction is the action of a record of heads. Its Object is a node, its As that node's key in
// the table of nodes, its Detail the node's heads.
const headsAction = "audit.heads"

// Folder is a folder of records of a node.
type Folder struct {
	Name string // name of the folder in heads and in messages
	Dir  string
}

// The names of a node's folders: the folder of the master's account, and the folder of root.
const (
	MasterFolder = "master"
	NodeFolder   = "node"
)

// Head is the newest record of a book at the time when another node recorded it.
type Head struct {
	Folder string `json:"folder"`
	Book   string `json:"book"`
	Seq    uint64 `json:"seq"`
	Chain  string `json:"chain"`
	// By is the node that recorded the head, and Time is when that node recorded it.
	By   string    `json:"by"`
	Time time.Time `json:"time,omitzero"`
}

// String returns the head in the form that [ParseHeads] reads.
func (h Head) String() string {
	return fmt.Sprintf("%s/%s:%d:%s", h.Folder, h.Book, h.Seq, h.Chain)
}

// OfHeads reports whether h is the head of the book of heads. That book changes with each record of
// heads.
func (h Head) OfHeads() bool { return h.Book == headsShelf }

var headForm = regexp.MustCompile(fmt.Sprintf(`\b(%s|%s)/([a-z]{1,16}):([0-9]{1,16}):([0-9a-f]{%d})\b`,
	MasterFolder, NodeFolder, hashLen))

// maxHeads bounds the heads that are read from one text.
const maxHeads = 32

// ParseHeads returns the heads in a text, such as a line of the system's log.
func ParseHeads(text string) (out []Head) {
	for _, m := range headForm.FindAllStringSubmatch(text, maxHeads) {
		seq, err := strconv.ParseUint(m[3], 10, 64)
		if err != nil || seq == 0 || seq > maxSeq || shelfNamed(m[2]).name == "" {
			continue
		}
		out = append(out, Head{Folder: m[1], Book: m[2], Seq: seq, Chain: m[4]})
	}
	return out
}

// ReadHeads returns the heads of a node that it finds in lines of any text: in a system's log, or in
// records of any node.
func ReadHeads(r io.Reader, node string) (out []Head, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if r := decode(lines.Bytes()); r.Action == headsAction && r.Object != node {
			continue
		}
		out = append(out, ParseHeads(lines.Text())...)
		if len(out) > maxToldHeads {
			out = slices.Delete(out, 0, len(out)-maxToldHeads/2) // the newest come last
		}
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the heads of an audit record: %w", err)
	}

	return out, nil
}

// maxToldHeads bounds the heads in memory while a file is read.
const maxToldHeads = 400_000

// HeadsText returns heads as one line.
func HeadsText(heads []Head) string {
	var parts []string
	for _, h := range heads {
		parts = append(parts, h.String())
	}
	return strings.Join(parts, " ")
}

// Heads returns the heads of the books in some folders. It syncs each book first, so that no power
// cut loses a returned head. It blocks while the disk hangs.
func Heads(folders ...Folder) ([]Head, error) {
	var out []Head
	var faults []error
	for _, folder := range folders {
		for _, b := range booksOf(folder.Dir) {
			l, err := b.chainEnd()
			if err != nil {
				faults = append(faults, fmt.Errorf("read the audit records in %s: %w", folder.Dir, err))
			}
			if l.seq > 0 {
				out = append(out, Head{Folder: folder.Name, Book: b.name, Seq: l.seq, Chain: l.chain})
			}
		}
	}

	return out, errors.Join(faults...)
}

// chainEnd returns the end of a book's chain, or the zero link if there is none.
func (b book) chainEnd() (link, error) {
	files, err := b.fileNames()
	if err != nil {
		return link{}, err
	}

	for _, path := range slices.Backward(files) {
		f, _, err := durable.Open(path, durable.Refuse)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return link{}, err
		}

		var l link
		st, err := f.Stat()
		if err == nil {
			l, _, err = lastLink(f, st.Size())
		}

		if err == nil && l.seq > 0 {
			err = unix.Fdatasync(int(f.Fd())) // sync after reading: everything up to the head is on the disk then
		}

		err = errors.Join(err, f.Close())
		if err != nil || l.seq > 0 {
			return l, err
		}
	}

	return link{}, nil
}

// HeadsRecord returns the record by which this node notes the heads that another node has sent.
// node and key are the other node's name and its key in the table of nodes; key is "" for a node
// without a cluster.
func HeadsRecord(node, key string, heads []Head) Record {
	return Record{
		Actor:  Actor{User: node, Proof: Peer, As: clipText(key, maxHeadKey), From: Local},
		Action: headsAction,
		Object: node,
		Result: OK,
		Detail: HeadsText(heads),
	}
}

// CutRecord returns the record that says that a node's audit records have been cut off.
func CutRecord(node string, why error) Record {
	return Record{
		Actor:  Actor{User: node, Proof: Peer, From: Local, Limited: true},
		Action: "audit.cut",
		Object: node,
		Result: Failed,
		Detail: why.Error(),
	}
}

// maxHeadKey is how many characters of a node's key are recorded, to distinguish the node from
// another machine of the same name.
const maxHeadKey = 16

// HeadsQuery returns a query for the records of heads.
func HeadsQuery() Query { return Query{Action: headsAction} }

// HeadsOf returns the heads in list of the node with that name and key.
func HeadsOf(list []Record, node, key string) (out []Head) {
	for _, r := range list {
		if r.Action != headsAction || r.Object != node || r.As != clipText(key, maxHeadKey) {
			continue
		}
		for _, h := range ParseHeads(r.Detail) {
			h.By, h.Time = r.Node, r.Time
			out = append(out, h)
		}
	}
	return out
}
