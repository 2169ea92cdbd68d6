package git

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"saltern/internal/printable"
)

// Remote describes a remote repository and how to fetch it, as configured by the administrator.
type Remote struct {
	URL      string // https, http, ssh, git, file, user@host:path, or a path on this disk
	Refspecs []string
	Depth    int // how many commits of each ref to fetch; 0: all
	// Commits lists commit ids that the configuration names. They are fetched even if no ref leads
	// to them.
	Commits []string

	User, Password     string // for http and https
	InsecureAuth       bool   // send User and Password over http, too
	PubKey, PrivKey    string // paths of key files, for ssh
	Passphrase         string // passphrase of PrivKey
	SkipVerify         bool   // accept any certificate
	Proxy              string // for http and https
	Interval           time.Duration
	address, transport string
}

// maxURL bounds the length of a remote's URL, in bytes.
const maxURL = 2048

var (
	scpLike  = regexp.MustCompile(`^([A-Za-z0-9._~-]+@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([^:].*)$`)
	userName = regexp.MustCompile(`^[A-Za-z0-9._~][A-Za-z0-9._~-]*$`)
	hostName = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_][A-Za-z0-9._-]*)(:[0-9]{1,5})?$`)
	refspec  = regexp.MustCompile(`^(\^|\+?)[A-Za-z0-9][^\s:?\[\\^~\x00-\x1f]*(:refs/[^\s:?\[\\^~\x00-\x1f]+)?$`)
	objectID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// DefaultRefspecs returns Salt's default refspecs (salt/config/__init__.py, gitfs_refspecs).
func DefaultRefspecs() []string {
	return []string{"+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"}
}

// Check returns an error if the remote is invalid. [Batch.Add] refuses the same remotes.
func (r *Remote) Check() error { return r.normalize() }

// normalize checks the remote, splits its URL and sets defaults. If the URL contains a password,
// normalize moves it to Password, because the URL becomes a command-line argument, which all users
// can read.
func (r *Remote) normalize() error {
	if len(r.Refspecs) == 0 {
		r.Refspecs = DefaultRefspecs()
	}

	if r.Interval <= 0 {
		r.Interval = time.Minute
	}

	r.Depth = max(0, r.Depth)
	for _, s := range r.Refspecs {
		if len(s) > 512 || !refspec.MatchString(s) {
			return fmt.Errorf("refspec %.100q is not one that can be fetched", s)
		}
	}

	for _, id := range r.Commits {
		if !objectID.MatchString(id) {
			return fmt.Errorf("%.100q is not the whole id of a commit", id)
		}
	}

	if err := r.locate(); err != nil {
		return err
	}
	if strings.ContainsAny(r.User+r.Password, "\r\n\x00") {
		return errors.New("user or password has a line break")
	}
	if r.transport == "http" && r.Password != "" && !r.InsecureAuth {
		return errors.New("a password would be sent in the clear: use https or ssh, or set insecure_auth: True")
	}

	return nil
}

func (r *Remote) locate() error {
	switch u := r.URL; {
	case u == "" || len(u) > maxURL || strings.ContainsAny(u, "\x00\r\n\t") || strings.HasPrefix(u, "-"):
		return errors.New("this is not the URL of a repository")
	case strings.HasPrefix(u, "/"):
		r.transport, r.address = "file", "file://"+path.Clean(u)
		return nil
	case !strings.Contains(u, "://"):
		m := scpLike.FindStringSubmatch(u)
		if m == nil || strings.HasPrefix(m[1], "-") || strings.HasPrefix(m[2], "-") || strings.HasPrefix(m[3], "-") {
			return errors.New("this is not the URL of a repository: write https://host/path, ssh://user@host/path, user@host:path, or /path")
		}
		r.transport, r.address = "ssh", u
		return nil
	}

	u, err := url.Parse(r.URL)
	if err != nil {
		// The text of err contains the URL, and perhaps a password.
		return errors.New("this URL cannot be read")
	}

	switch r.transport = strings.ToLower(u.Scheme); r.transport {
	case "file":
		if u.Host != "" || !path.IsAbs(u.Path) || u.User != nil {
			return errors.New("a file URL is file:///path")
		}
		r.address = "file://" + u.Path
		return nil
	case "git+ssh", "ssh+git":
		r.transport = "ssh"
	case "http", "https", "ssh", "git":
	default:
		return fmt.Errorf("the protocol %.20q is not supported: https, http, ssh, git and file are", u.Scheme)
	}

	if !hostName.MatchString(u.Host) || strings.HasPrefix(u.Path, "/-") || u.Path == "" {
		return errors.New("this URL has no valid host and path")
	}

	if u.User != nil {
		if p, ok := u.User.Password(); ok && r.Password == "" {
			r.User, r.Password = u.User.Username(), p
		}

		switch {
		case r.transport == "ssh":
			if !userName.MatchString(u.User.Username()) {
				return errors.New("this URL has no valid user")
			}
			u.User = url.User(u.User.Username())
		default:
			if r.User == "" {
				r.User = u.User.Username()
			}
			u.User = nil
		}
	}

	u.Scheme = r.transport
	r.address = u.String()
	return nil
}

// Shown returns the URL without a password.
func (r *Remote) Shown() string {
	return printable.Brief(strings.TrimPrefix(r.address, "file://"), 300)
}

// dirName returns the name of the remote's directory. If the address, the user, the depth or the
// refspecs change, so does the name; then the remote is fetched from scratch.
func (r *Remote) dirName() string {
	h := sha256.New()
	fmt.Fprintf(h, "1\x00%s\x00%s\x00%d\x00%s", r.address, r.User, r.Depth, strings.Join(r.Refspecs, "\x00"))
	return hex.EncodeToString(h.Sum(nil)[:12])
}
