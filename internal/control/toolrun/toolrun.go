// Package toolrun runs one of Salt's tools on another node of the cluster when the master of the
// tool's own node does not answer. The tool asks the supervisor of its node. That supervisor asks
// the supervisor of another node, which starts the tool there.
//
//	tool ─ POST /v1/tool ─ local API ─ POST /v1/tool ─ node API ─ tool, on standard input
//
// The request is the same at each step, a [Request] in JSON. The answer is a stream of frames,
// which the supervisors in between pass on unread: the tool's output as it comes, and its exit code
// in the last frame. A frame is its [Kind], the length of its data in two bytes (big-endian) and
// the data. If the stream ends without that last frame, the tool may or may not have finished.
package toolrun

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Path is the route in the local API and in the node API.
const Path = "/v1/tool"

// AskedHeader is the header in which the local API's answer names the node that runs the tool.
const AskedHeader = "Saltern-Asked"

// Program is the name under which the tools' program reads a request from standard input. Its only
// argument is the configuration folder.
const Program = "salt-elsewhere"

// Bounds.
const (
	// MaxBytes bounds a request in JSON.
	MaxBytes = 1 << 20
	maxWords = 16384
	maxUser  = 80
	// MaxColumns bounds the width of a terminal.
	MaxColumns = 10000
	// MaxRuns is how many tools a node runs at the same time for other nodes, and how many of its
	// own tools may run on other nodes.
	MaxRuns = 16
	// Beat is how often a node sends a frame while its tool prints nothing.
	Beat = 5 * time.Second
	// Silence is how long a reader waits for a frame before it considers the other node lost.
	Silence = 6 * Beat
	// Stall is how long the reader of a tool's output may read nothing, for example a pager that
	// nobody scrolls.
	Stall = 10 * time.Minute
	// Takes bounds the time of one run.
	Takes = 24 * time.Hour
)

// Request is a request for one run of a tool.
type Request struct {
	Tool  string   `json:"tool"`  // salt or salt-run
	Words []string `json:"words"` // command line without the tool's name
	// User is the user on whose behalf the tool runs, root or sudo_ and a name. The job cache and
	// the log name this user.
	User string `json:"user"`
	// Terminal means that a terminal with Columns columns shows the result.
	Terminal bool `json:"terminal,omitempty"`
	Columns  int  `json:"columns,omitempty"`
}

// Check returns an error that says what is wrong with a request, or nil. It does not check the
// options among the arguments: only the tool knows their spellings.
func (r Request) Check() error {
	switch {
	case !slices.Contains([]string{"salt", "salt-run"}, r.Tool):
		return fmt.Errorf("%.20q cannot be asked of another node", r.Tool)
	case len(r.Words) > maxWords:
		return fmt.Errorf("%d arguments are too many to ask another node", len(r.Words))
	case slices.ContainsFunc(r.Words,
		func(w string) bool { return strings.ContainsRune(w, 0) || !utf8.ValidString(w) }):
		return errors.New("an argument is not text in UTF-8")
	case r.Columns < 0 || r.Columns > MaxColumns:
		return fmt.Errorf("%d columns", r.Columns)
	}

	name, sudo := strings.CutPrefix(r.User, "sudo_")
	switch {
	case r.User == "root":
	case !sudo || name == "" || len(r.User) > maxUser ||
		strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == '/' || c == 0x7f }):
		return errors.New("only root can ask another node")
	}

	return nil
}

// Encode returns r in JSON, or the error of [Request.Check].
func (r Request) Encode() ([]byte, error) {
	err := r.Check()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err == nil && len(b) > MaxBytes {
		err = fmt.Errorf("%d bytes of arguments are too many to ask another node", len(b))
	}
	return b, err
}

// Read reads, checks and returns a request.
func Read(from io.Reader) (r Request, err error) {
	b, err := io.ReadAll(io.LimitReader(from, MaxBytes+1))
	switch {
	case err != nil:
		return Request{}, fmt.Errorf("read the request: %w", err)
	case len(b) > MaxBytes:
		return Request{}, fmt.Errorf("the request has more than %d bytes", MaxBytes)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Request{}, fmt.Errorf("decode the request: %w", err)
	}
	return r, r.Check()
}

// Kind is the kind of data in a frame.
type Kind byte

// The kinds of frames.
const (
	Stdout Kind = 'o' // what the tool prints
	Stderr Kind = 'e' // what the tool prints on standard error
	Alive  Kind = 'a' // no data: the tool still runs
	Exit   Kind = 'x' // the tool's exit code in one byte; the last frame
)

const maxFrame = 1<<16 - 1

// WriteFrame writes data as one frame, or as several if data is longer than a frame. It calls Write
// once for each frame.
func WriteFrame(w io.Writer, k Kind, data []byte) error {
	for {
		n := min(len(data), maxFrame)
		b := binary.BigEndian.AppendUint16([]byte{byte(k)}, uint16(n))
		if _, err := w.Write(append(b, data[:n]...)); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// ReadFrame reads a frame. If the stream ends, the error is [io.ErrUnexpectedEOF].
func ReadFrame(r io.Reader) (Kind, []byte, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}

	k, n := Kind(head[0]), int(binary.BigEndian.Uint16(head[1:]))
	switch {
	case k != Stdout && k != Stderr && k != Alive && k != Exit:
		return 0, nil, fmt.Errorf("a frame of the kind %q", head[0])
	case k == Exit && n != 1, k == Alive && n != 0:
		return 0, nil, fmt.Errorf("a frame of the kind %q with %d bytes", head[0], n)
	}

	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}

	return k, data, nil
}
