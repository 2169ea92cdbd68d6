package git

import (
	"errors"
	"strings"

	"saltern/internal/printable"
)

// Kind classifies a remote's fault by what an administrator can do about it.
type Kind string

// The kinds of faults.
const (
	Unreachable    Kind = "unreachable"    // no connection, no answer, or no repository at the URL
	Authentication Kind = "authentication" // the remote refuses the master's credentials
	HostKey        Kind = "host key"       // the remote's key or certificate is not trusted
	RefGone        Kind = "ref gone"       // the remote has no such branch or tag, or has neither branches nor tags
	TooLarge       Kind = "too large"      // the remote's content exceeds a bound of Limits
	Broken         Kind = "broken"         // the local copy, or the program git, is broken
)

// Fault is an error with a remote. Its text contains no password.
type Fault struct {
	Kind Kind
	Text string // one line

	corrupt bool // the local copy is damaged
}

func (f *Fault) Error() string { return string(f.Kind) + ": " + f.Text }

// tooLarge returns a Fault of the kind TooLarge.
func tooLarge(text string) error { return &Fault{Kind: TooLarge, Text: text} }

// ErrNoRoom means that the disk cache cannot take another tree now. The cache may take the tree
// later, when other trees are unused.
var ErrNoRoom = errors.New("no room for one more tree of files")

// KindOf returns the kind of the Fault in the chain of err, or "" if there is no Fault.
func KindOf(err error) Kind {
	var f *Fault
	if errors.As(err, &f) {
		return f.Kind
	}
	return ""
}

// faultOf returns the Fault for a message, the text that git wrote to standard error. It recognises
// the messages of git in the C locale (remote-curl.c, connect.c, credential.c), of OpenSSH and of
// libcurl.
func faultOf(message string) *Fault {
	low := strings.ToLower(message)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(low, w) {
				return true
			}
		}
		return false
	}

	kind, corrupt := Unreachable, false
	switch {
	case has("host key verification failed", "host identification has changed", "certificate", "ssl: ", "tls: "):
		kind = HostKey
	case has("authentication failed", "permission denied", "could not read username",
		"could not read password", "terminal prompts disabled", "returned error: 401", "returned error: 403",
		"too many authentication failures", "dubious ownership", "load key"):
		kind = Authentication
	case has("couldn't find remote ref", "not our ref"):
		kind = RefGone
	case has("unable to write", "no space left", "read-only file system", "quota exceeded", "unable to create"):
		kind = Broken
	case has("bad object", "object file", "is corrupt", "corrupted", "missing blob", "missing tree",
		"did not send all necessary objects", "unable to read", "bad ref", "not a git repository", "unresolved deltas",
		"invalid index-pack output"):
		kind, corrupt = Broken, true
	}

	return &Fault{kind, briefOf(message), corrupt}
}

// briefOf returns the important lines of the text that git wrote to standard error, without the
// advice after them.
func briefOf(message string) string {
	var out []string
	for line := range strings.Lines(message) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "hint:") || strings.HasPrefix(line, "@@@") ||
			strings.HasPrefix(line, "Please make sure") || line == "and the repository exists." {
			continue
		}
		out = append(out, line)
	}
	return printable.Brief(strings.Join(out, " "), 300)
}
