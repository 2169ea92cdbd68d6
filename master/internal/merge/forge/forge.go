package forge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"saltern/internal/release"
	"saltern/master/internal/merge/options"
	"saltern/master/internal/webclient"
)

// Bounds of what is sent and read.
const (
	// Timeout bounds one request, from the connection to the end of the answer.
	Timeout = 15 * time.Second
	// MaxDescription bounds the description of a status, in characters, as GitHub does; others take more.
	MaxDescription = 140
	// MaxTarget bounds the address that a status leads to, in bytes, as GitLab does (its model
	// GenericCommitStatus): it refuses a status with a longer one.
	MaxTarget = 255
	// MaxComment bounds a comment in bytes. GitHub takes 65,536 characters.
	MaxComment = 30_000
	maxAnswer  = 8 << 20
	pageSize   = 50  // open merge requests
	smallPage  = 5   // after an answer of more than maxAnswer
	maxMerges  = 250 // open merge requests
	maxPages   = 60
	maxTooLong = 10 // merge requests that have more than maxAnswer alone
	listTakes  = time.Minute
)

// State is what a status says.
type State string

// The states.
const (
	Pending State = "pending"
	Success State = "success"
	Failure State = "failure"
	Error   State = "error"
)

// Status is the status of a commit.
type Status struct {
	Remote      string // URL of the git remote, without a password
	Branch      string // only the forms generic and gitlab send it
	Commit      string
	State       State
	Description string
	Context     string
	Target      string // URL that shows more, or ""
}

// Merge is an open merge request.
type Merge struct {
	Number int64
	Commit string // its latest commit
}

// Errors of a request. Others may pass: the caller tries again.
var (
	// ErrRefused means that the server does not take this request, and will not take it later.
	ErrRefused = errors.New("the server refuses this request")
	// ErrGone means that the server has no such commit, comment or repository, or shows none to this token.
	ErrGone = errors.New("the server has no such thing")
	// ErrForbidden means that the token lacks the right: for this commit, such as one of a protected
	// branch, or for all.
	ErrForbidden = errors.New("the server does not permit this to the token")
)

// LaterError means that the server has asked for a pause.
type LaterError struct {
	Err   error
	After time.Duration
}

// Error returns the text of the error below.
func (e *LaterError) Error() string { return e.Err.Error() }

// Unwrap returns the error below.
func (e *LaterError) Unwrap() error { return e.Err }

// Client asks the server of an entry. It is safe for concurrent use. Its errors contain no secret.
type Client struct {
	to      *options.Report
	dialect dialect
}

// dialect is how the servers differ.
type dialect interface {
	// authorize sets the header for a token.
	authorize(h http.Header, token string)
	// statusPath returns the path of the status of a commit.
	statusPath(commit string) string
	// status returns the body of the request that sets a status.
	status(s Status) any
	// isSet reports whether the body of a refusal says that the commit has this status already.
	isSet(s Status, refusal []byte) bool
	// mergesPath returns the path of a page of the open merge requests, by how many a page has, or "".
	mergesPath(size, page int) string
	// merges reads a page of merge requests.
	merges(body []byte) ([]Merge, error)
	// commentPath returns the method and path for a new comment, or with an id for another text of
	// that comment.
	commentPath(number, id int64) (method, path string)
}

// New returns the Client of an entry.
func New(to *options.Report) *Client {
	c := &Client{to: to}
	switch to.Form {
	case options.GitHub:
		c.dialect = gitHub{repository: "/repos/" + to.Project}
	case options.Gitea:
		c.dialect = gitea{gitHub{repository: "/api/v1/repos/" + to.Project}}
	case options.GitLab:
		c.dialect = gitLab{project: "/api/v4/projects/" + url.PathEscape(to.Project)}
	default:
		c.dialect = generic{}
	}
	return c
}

// SetStatus sets the status of a commit.
func (c *Client) SetStatus(ctx context.Context, s Status) error {
	_, refusal, err := c.ask(ctx, http.MethodPost, c.dialect.statusPath(s.Commit), c.dialect.status(s))
	if errors.Is(err, ErrRefused) && c.dialect.isSet(s, refusal) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set the status of commit %.12s: %w", s.Commit, err)
	}
	return nil
}

// Merges returns the open merge requests, the newest first. If there are very many it leaves out the
// oldest. Descriptions may be long: it asks for smaller pages if an answer has more than maxAnswer, and
// leaves out single merge requests that have more.
func (c *Client) Merges(ctx context.Context) (all []Merge, err error) {
	if c.dialect.mergesPath(pageSize, 1) == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTakes)
	defer cancel()

	size := pageSize
	read := 0
	tooLong := 0
	for asked := 0; asked < maxPages && read < maxMerges; asked++ {
		some, err := c.page(ctx, size, read/size+1)
		switch {
		case errors.Is(err, errTooLong) && size == pageSize:
			size = smallPage
		case errors.Is(err, errTooLong) && size == smallPage:
			size = 1
		case errors.Is(err, errTooLong) && tooLong < maxTooLong:
			tooLong++
			read++
		case err != nil:
			return nil, fmt.Errorf("list the open merge requests: %w", err)
		default:
			all = append(all, some[:min(len(some), size)]...)
			if len(some) < size {
				return all, nil
			}
			read += size
		}
	}
	return all, nil
}

// page returns a page of the open merge requests.
func (c *Client) page(ctx context.Context, size, page int) ([]Merge, error) {
	body, _, err := c.ask(ctx, http.MethodGet, c.dialect.mergesPath(size, page), nil)
	if err != nil {
		return nil, err
	}
	some, err := c.dialect.merges(body)
	if err != nil {
		return nil, errNoJSON
	}
	return some, nil
}

var errTooLong = fmt.Errorf("the answer of the server has more than %d bytes", maxAnswer)

var errNoJSON = errors.New("the answer cannot be read: is url the address of the server?")

// Comment writes a comment on a merge request, or another text into the comment with the id, if that
// is not 0. It returns the id of the comment, or 0 if the server does not tell it.
func (c *Client) Comment(ctx context.Context, number, id int64, text string) (int64, error) {
	method, path := c.dialect.commentPath(number, id)
	body, _, err := c.ask(ctx, method, path, map[string]string{"body": text})
	if err != nil {
		return 0, fmt.Errorf("comment on merge request %d: %w", number, err)
	}
	var made struct {
		ID int64 `json:"id"`
	}
	_ = json.Unmarshal(body, &made) // the comment is written, whatever the answer says
	return cmp.Or(made.ID, id), nil
}

// ask sends one request, and returns the body of its answer, or that of a refusal.
func (c *Client) ask(ctx context.Context, method, path string, body any) (answer, refusal []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	request, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}

	config, err := webclient.TLS("", c.to.CA)
	if err != nil {
		return nil, nil, err
	}
	client := webclient.New(config) // requests are rare, so no connection is kept
	defer client.CloseIdleConnections()

	got, err := client.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the server: %w", webclient.WithoutEcho(err))
	}
	defer got.Body.Close()

	read, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer of the server: %w", webclient.WithoutEcho(err))
	}
	if len(read) > maxAnswer {
		return nil, nil, errTooLong
	}
	if err := judge(got); err != nil {
		return nil, read, err
	}
	return read, nil, nil
}

func (c *Client) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("make a request: %w", err)
		}
		content = bytes.NewReader(text)
	}

	address := c.to.URL.String()
	if path != "" {
		base := *c.to.URL
		base.RawQuery = ""
		base.Fragment = ""
		address = strings.TrimRight(base.String(), "/") + path
	}
	request, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", webclient.WithoutURL(err))
	}

	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "Saltern/"+release.Version())
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if !c.to.Token.IsSet() {
		return request, nil
	}
	token, err := c.to.Token.Read()
	if err != nil {
		return nil, err
	}
	c.dialect.authorize(request.Header, token)
	return request, nil
}

// judge returns nil for an answer that accepts a request.
func judge(answer *http.Response) error {
	code := answer.StatusCode
	err := fmt.Errorf("the server answers with %d %s", code, http.StatusText(code))
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		return fmt.Errorf("the server answers with %d, a redirect, which is not followed: set url to the address that counts", code)
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%w: is the token right, and still valid?", err)
	case code == http.StatusForbidden:
		pause := webclient.PauseOf(answer)
		if pause == 0 && answer.Header.Get("X-RateLimit-Remaining") == "0" { // GitHub's limit of an hour
			pause = webclient.LongestPause
		}
		if pause > 0 {
			return &LaterError{Err: err, After: pause}
		}
		return fmt.Errorf("%w: %w: has the token the right to set statuses, also of protected branches?", ErrForbidden, err)
	case code == http.StatusNotFound, code == http.StatusGone:
		return fmt.Errorf("%w: %w; are project and token right?", ErrGone, err)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if pause := webclient.PauseOf(answer); pause > 0 {
			return &LaterError{Err: err, After: pause}
		}
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
