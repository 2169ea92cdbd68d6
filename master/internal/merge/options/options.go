// Package options reads the option saltern_merge_reports: which branches of which git remotes are
// compared with what is served, and where the result goes.
package options

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"saltern/internal/printable"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/optionmap"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Bounds of the option.
const (
	maxReports  = 16
	maxPatterns = 50
	maxText     = 2 << 10 // bytes of one value
)

// Form is the kind of a forge.
type Form string

// The forms.
const (
	GitHub  Form = "github"
	GitLab  Form = "gitlab"
	Gitea   Form = "gitea"   // also Forgejo
	Generic Form = "generic" // a POST of JSON to one URL
)

// Comment says what a comment on a merge request shows.
type Comment string

// The values of comment.
const (
	NoComment Comment = "none"
	Numbers   Comment = "numbers" // how many minions, groups and files
	Changes   Comment = "changes" // the whole report, with names of minions and values
)

// Report is an entry of the option: the reports about one remote.
type Report struct {
	// ID is a digest of what the entry is about. It stays the same after a restart and on all masters.
	ID       string
	Remote   string // URL or name of the git remote
	Form     Form
	URL      *url.URL // of the forge, without the path of its API; of the form generic: where to post
	Project  string   // owner/name on the forge; of the form generic "" is possible
	Token    rules.Secret
	CA       string   // file with certificates of authorities, in PEM; "": the system's
	Branches []string // patterns of branches; "!" in front: not these
	Into     string   // branch of which the ref takes the place; "": the remote's first
	Context  string   // name of the status
	Comment  Comment
	Console  *url.URL // page to which statuses lead. It may be nil: none
	Forks    bool     // compare also what refspecs fetch from elsewhere than the remote's branches
	// WithoutGrains means that minions which cannot be compared, because the master has no grains of them, are
	// no failure.
	WithoutGrains bool
	// Fails means that differences are a failure. Otherwise they are a success with numbers.
	Fails bool
}

// Covers reports whether the branches of the entry include one.
func (r *Report) Covers(branch string) bool {
	found := false
	for _, p := range r.Branches {
		if rest, not := strings.CutPrefix(p, "!"); not {
			if pattern.Glob(rest, branch) {
				return false
			}
			continue
		}
		found = found || pattern.Glob(p, branch)
	}
	return found
}

// Parse reads the option. It returns the entries that it can read, and an error for each of the
// others. No error quotes a value that may be secret. trusted is the option saltern_diff_trusted.
func Parse(option []any, trusted bool) (all []Report, faults []error) {
	if len(option) > maxReports {
		faults = append(faults, fmt.Errorf("there are %d entries, and at most %d are read", len(option), maxReports))
		option = option[:maxReports]
	}

	for i, entry := range option {
		r, err := parseReport(entry)
		if err == nil && r.Forks && trusted {
			err = errors.New("forks: strangers would run programs on this master, because saltern_diff_trusted is set")
		}
		if err == nil && slices.ContainsFunc(all, func(o Report) bool { return o.ID == r.ID }) {
			err = errors.New("another entry is for the same remote and the same status: set context")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("entry %d: %w", i+1, err))
			continue
		}
		all = append(all, r)
	}
	return all, faults
}

// reader reads the keys of a map.
type reader struct{ optionmap.Reader }

// keys are the keys of an entry.
var keys = []string{
	"remote", "form", "url", "project", "token", "token_file", "ca", "insecure_auth",
	"branches", "into", "differences", "without_grains", "comment", "console", "context", "forks",
}

// Keys returns the keys that an entry may have.
func Keys() []string { return slices.Clone(keys) }

// checkKeys refuses a key that is misspelt, which would be obeyed by nobody.
func (in *reader) checkKeys() {
	for _, key := range in.Map.Keys() {
		if !slices.Contains(keys, key) {
			in.Fail(printable.Brief(key, 60), "there is no such key; there are %s", strings.Join(keys, ", "))
			return
		}
	}
}

// text returns the text of a key, or preset without the key.
func (in *reader) text(key, preset string) string {
	if in.Map.Value(key) == nil {
		return preset
	}
	text := in.Line(key, maxText)
	if text == "" {
		in.Fail(key, "it has to be a text of one line")
		return preset
	}
	return text
}

// word returns one of the words of a key, of which the first is the preset.
func (in *reader) word(key string, words ...string) string {
	word := in.text(key, words[0])
	if !slices.Contains(words, word) {
		in.Fail(key, "there are %s", strings.Join(words, ", "))
	}
	return word
}

// texts returns the texts of a key, which is a text or a list of texts.
func (in *reader) texts(key string, preset ...string) []string {
	if in.Map.Value(key) == nil {
		return preset
	}
	out := in.Texts(key, maxText)
	if len(out) == 0 || len(out) > maxPatterns {
		in.Fail(key, "it has %d entries, and 1 to %d are read", len(out), maxPatterns)
	}
	return out
}

// address returns the URL of a key, or nil without the key. The error does not quote it, because it
// may be secret.
func (in *reader) address(key string) *url.URL {
	text := in.text(key, "")
	if text == "" {
		return nil
	}
	u, err := rules.ParseURL(text)
	if err != nil {
		in.Fail(key, "%w", err)
		return nil
	}
	return u
}

func (in *reader) token() rules.Secret {
	text := in.text("token", "")
	file := in.text("token_file", "")
	switch {
	case text != "" && file != "":
		in.Fail("token", "token_file is set as well")
	case text != "":
		return rules.NewSecret(text)
	case file != "" && !filepath.IsAbs(file):
		in.Fail("token_file", "it has to be a whole path")
	case file != "":
		return rules.FileSecret(file)
	}
	return rules.Secret{}
}

// projectForm matches the path of a repository at a forge: GitLab has groups within groups.
var projectForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$`)

func parseReport(entry any) (Report, error) {
	m, ok := entry.(*value.Map)
	if !ok {
		return Report{}, errors.New("it is not a map")
	}

	in := &reader{optionmap.Reader{Map: m}}
	r := Report{
		Remote:   in.text("remote", ""),
		Form:     Form(in.text("form", "")),
		URL:      in.address("url"),
		Project:  in.text("project", ""),
		Token:    in.token(),
		CA:       in.text("ca", ""),
		Branches: in.texts("branches", "*"),
		Into:     in.text("into", ""),
		Context:  in.text("context", "saltern"),
		Comment:  Comment(in.word("comment", string(NoComment), string(Numbers), string(Changes))),
		Console:  in.address("console"),
		Forks:    in.Bool("forks"),
		Fails:    in.word("differences", "success", "failure") == "failure",

		WithoutGrains: in.word("without_grains", "failure", "success") == "success",
	}
	in.check(&r)
	in.checkKeys()

	parts := fmt.Sprintf("%q", []string{r.Remote, string(r.Form), r.Project, r.Context, textOf(r.URL)})
	sum := sha256.Sum256([]byte(parts))
	r.ID = hex.EncodeToString(sum[:8])
	return r, in.Err()
}

func textOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	return u.String()
}

// check checks what depends on several keys.
func (in *reader) check(r *Report) {
	if r.Remote == "" {
		in.Fail("remote", "it has to be the URL or the name of a git remote")
	}
	in.checkRemote(r.Remote)
	if !slices.Contains([]Form{GitHub, GitLab, Gitea, Generic}, r.Form) {
		in.Fail("form", "there are github, gitlab, gitea and generic")
	}
	if r.URL == nil {
		in.Fail("url", "it is missing: the address of the server")
	}
	if r.URL != nil && r.URL.User != nil {
		in.Fail("url", "it has a user or password: set token_file")
	}
	if r.Console != nil && r.Console.User != nil {
		in.Fail("console", "it has a user or password, which each status would show")
	}
	if r.Form != Generic && (!projectForm.MatchString(r.Project) || strings.Contains(r.Project, "..")) {
		in.Fail("project", "it has to be like owner/name")
	}
	if r.Form == Generic && r.Comment != NoComment {
		in.Fail("comment", "the form generic has no merge requests")
	}
	if r.Form != Generic && !r.Token.IsSet() {
		in.Fail("token_file", "the server takes no status without a token")
	}
	if len(r.Context) > 100 {
		in.Fail("context", "it has more than 100 bytes")
	}
	if r.URL != nil && r.URL.Scheme == "http" && r.Token.IsSet() && !isLoopback(r.URL) && !in.Bool("insecure_auth") {
		in.Fail("url", "the token would be sent in clear: use https, or set insecure_auth: True")
	}
}

// checkRemote refuses a remote with a password or a token, which would be in logs and in git.reports. Only for
// ssh a user is no secret.
func (in *reader) checkRemote(remote string) {
	scheme, rest, isURL := strings.Cut(remote, "://")
	if !isURL {
		return
	}
	u, err := url.Parse(remote)
	if err != nil { // the error would quote it
		if strings.Contains(rest, "@") {
			in.Fail("remote", "it is no URL")
		}
		return
	}
	if u.User == nil {
		return
	}
	if _, has := u.User.Password(); has || !strings.Contains(strings.ToLower(scheme), "ssh") {
		in.Fail("remote", "it has a password, or a user that may be a token: write the URL without it")
	}
}

func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}
