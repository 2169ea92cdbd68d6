package fileserver

import (
	"context"

	"saltern/master/value"
)

// FileList lists the files of an environment (runner fileserver.file_list).
func (s *Server) FileList(ctx context.Context, env, prefix string) ([]string, error) {
	v, err := s.Call(ctx, "_file_list", "", value.NewMap("saltenv", env, "prefix", prefix))
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(v.([]any)))
	for _, f := range v.([]any) {
		out = append(out, f.(string))
	}
	return out, nil
}
