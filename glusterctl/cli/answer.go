package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"saltern/internal/command"
	"saltern/internal/printable"
)

// answer is the envelope of every reply of glusterd:
// cliOutput/{opRet,opErrno,opErrstr,output} (gluster cli/src/cli-xml-output.c).
type answer struct {
	ret, errno int
	text       string // opErrstr, or output if that is empty
	root       *element
}

// parseAnswer parses the output of a command. Some failures are plain text in spite of --xml;
// parseAnswer returns them as an [*Error] with Ret -1.
func parseAnswer(argv []string, out command.Output) (answer, error) {
	b := bytes.TrimSpace(out.Stdout)
	if len(b) == 0 || b[0] != '<' {
		text := firstText(b, out.Stderr)
		return answer{}, &Error{
			Command: argv,
			Exit:    out.Exit,
			Ret:     -1,
			Text:    text,
			Kind:    classify(-1, text),
		}
	}

	root, err := parseXML(b)
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", strings.Join(argv, " "), err)
	}
	if root.name != "cliOutput" {
		return answer{}, fmt.Errorf("read the answer of %s: the document is a <%s>", strings.Join(argv, " "),
			oneLine(root.name))
	}

	a := answer{root: root}
	if a.ret, err = strconv.Atoi(root.textAt("opRet")); err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: no opRet", strings.Join(argv, " "))
	}

	a.errno, _ = strconv.Atoi(root.textAt("opErrno")) // absent: 0
	if a.text = root.textAt("opErrstr"); a.text == "" {
		a.text = root.textAt("output")
	}

	a.text = oneLine(a.text)
	if a.ret != 0 {
		return a, &Error{
			Command: argv,
			Exit:    out.Exit,
			Ret:     a.ret,
			Errno:   a.errno,
			Text:    a.text,
			Kind:    classify(a.errno, a.text),
		}
	}

	return a, nil
}

func firstText(parts ...[]byte) string {
	for _, p := range parts {
		if p = bytes.TrimSpace(p); len(p) > 0 {
			return oneLine(string(p))
		}
	}
	return "no answer"
}

// oneLine returns gluster's text, cut and made safe for one line of a log.
func oneLine(s string) string { return printable.Brief(s, 2048) }

// Kind is the meaning of a refusal for the caller.
type Kind int

// Kinds of refusals.
const (
	Refused     Kind = iota // none of the kinds below: observe the state, then ask the operator
	Done                    // the change was made already
	Busy                    // another change is running: try later
	Waiting                 // a peer, the quorum or glusterd itself is not ready yet
	Conflict                // the other machine belongs to another pool
	BrickInUse              // a brick directory carries the mark of a volume
	RootDisk                // a brick directory is on the root file system
	DaemonDown              // the local glusterd does not answer
	NoVolume                // the volume does not exist
	NotReplica              // the command is only for replicated volumes
	PoolUnknown             // the list of peers is not settled (opRet -22)
)

// Retry reports whether the same command may succeed later without a change by an administrator.
func (k Kind) Retry() bool { return k == Busy || k == Waiting || k == DaemonDown || k == PoolUnknown }

// Error is a refusal of glusterd.
type Error struct {
	Command    []string
	Exit       int
	Ret, Errno int // opRet, opErrno
	Text       string
	Kind       Kind
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (opRet %d, opErrno %d, exit %d)", strings.Join(e.Command, " "), e.Text, e.Ret,
		e.Errno, e.Exit)
}

// KindOf returns the kind of an error of this package. If a command did not end in time, the kind
// is Waiting, because glusterd may still be working on the command and hold its lock.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, command.ErrTimeout):
		return Waiting
	}
	return Refused
}

// texts maps parts of texts to kinds. The first match counts.
// Source: the texts of glusterd 10.3, see testdata.
var texts = [...]struct {
	part string
	kind Kind
}{
	{"Another transaction is in progress", Busy},
	{"Locking failed on", Waiting},
	{"Connection failed. Please check if gluster daemon is operational", DaemonDown},
	{"Request timed out", Waiting},
	{"Quorum not met", Waiting},
	{"quorum is not met", Waiting},
	{"is not in 'Peer in Cluster' state", Waiting},
	{"Transport endpoint is not connected", Waiting},
	{"Not able to fetch volfile", Waiting},
	{"Commit failed on", Waiting},
	{"entries need heal", Waiting},
	{"part of another cluster", Conflict},
	{"is same as local uuid", Conflict},
	{"already part of a volume", BrickInUse},
	{"in the root partition", RootDisk},
	{"already in peer list", Done},
	{"Probe on localhost not needed", Done},
	{"is not part of cluster", Done},
	{"already started", Done},
	{"is not in the started state", Done},
	{"has been unsuccessful", Refused},
	{"granular entry heal on volume", Done}, // gluster answers a repeated enable with opRet -1
	{"only volumes of replicate", NotReplica},
	{"is not of type replicate", NotReplica},
	{"does not exist", NoVolume},
}

func classify(errno int, text string) Kind {
	switch errno {
	case 30802: // EG_ANOTRANS
		return Busy
	case 30806: // EG_NOVOL
		return NoVolume
	}
	for _, t := range texts {
		if strings.Contains(text, t.part) {
			return t.kind
		}
	}
	return Refused
}
