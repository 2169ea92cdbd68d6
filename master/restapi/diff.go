package restapi

import (
	"context"
	"net/http"
	"strings"

	"saltern/master/value"
)

// diffRunners are the runners whose results are the answers to GET /diff/NAME. Their rights apply.
var diffRunners = map[string]string{
	"pillars":  "pillar.diff",
	"states":   "top.diff",
	"branches": "git.branches",
	"reports":  "git.reports",
}

// diffNames are the fields that the query of a comparison may have: the arguments of its runner.
var diffNames = []string{"env", "folder", "format", "from", "into", "pillarenv", "ref", "remote", "saltenv", "tgt", "tgt_type"}

// showDiff answers with what a branch will change, with the branches, or with the commits that were
// reported to git servers.
func showDiff(s *Server, ctx context.Context, q *request) (any, error) {
	fun := ""
	if len(q.args) > 0 {
		fun = diffRunners[q.args[0]]
	}
	if fun == "" {
		return nil, s.noPath(q.http)
	}

	named := value.NewMap()
	query := q.http.URL.Query()
	if len(query) > 0 && !strings.HasSuffix(fun, ".diff") {
		return nil, &failure{http.StatusBadRequest, "The list takes no arguments."}
	}
	for key, values := range query {
		named.Set(key, strings.Join(values, ","))
	}
	low := value.NewMap("client", "runner", "fun", fun, "kwarg", named)
	got, err := s.execute(ctx, q, []any{low}, "", q.token)
	if err != nil {
		return nil, err
	}
	if text, isText := got[0].(string); isText { // wrong arguments: Salt does not treat them as a failure of the runner
		return nil, &failure{http.StatusBadRequest, value.StrMax(text, 1000)}
	}
	return result(got), nil
}
