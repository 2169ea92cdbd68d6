package setup

import (
	"bytes"
	"fmt"
	"maps"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/settings"
)

// Base says where a node stores its files before appliance.yaml exists. Empty values stand for the
// defaults.
type Base struct {
	DataDir    string
	RuntimeDir string
}

const renderHead = "# Written by the set-up. You may edit it: applianced config check, then applianced reload.\n"

// Render returns the text of appliance.yaml for complete answers. It includes the keys of Settings,
// except those that make the node part of its cluster.
func Render(a Answers, base Base) ([]byte, error) {
	doc := maps.Clone(a.Settings)
	if doc == nil {
		doc = map[string]any{}
	}

	doc["node"], doc["cluster"] = a.Node, a.Cluster
	if a.Cluster == "" { // a node that joins learns the name from the cluster
		doc["cluster"] = "unknown"
	}

	if base.DataDir != "" {
		doc["data_dir"] = base.DataDir
	}

	if base.RuntimeDir != "" {
		doc["runtime_dir"] = base.RuntimeDir
	}

	sub := func(key string, values map[string]any) error {
		m := map[string]any{}
		if old, ok := doc[key]; ok {
			given, ok := old.(map[string]any)
			if !ok {
				return fmt.Errorf("settings: %s is not a list of keys", key)
			}
			m = maps.Clone(given)
		}

		maps.Copy(m, values)
		doc[key] = m
		return nil
	}

	storage := map[string]any{"kind": a.Storage.Kind}
	if a.Storage.Kind == "" { // empty: the storage of the cluster that the node joins
		storage["kind"] = settings.LocalStorage
	}

	if a.Storage.Path != "" {
		storage["path"] = a.Storage.Path
	}

	given, _ := doc["storage"].(map[string]any)
	_, said := given["tls"]
	switch {
	case a.Storage.TLS != nil:
		storage["tls"] = *a.Storage.TLS
	case !said && a.Mode == Form && a.Storage.Kind == settings.VolumeStorage:
		storage["tls"] = true // because keys and pillars travel between the nodes
	}

	for _, s := range []struct {
		key    string
		values map[string]any
	}{
		{"front", map[string]any{"addresses": a.Front}},
		{"master", map[string]any{"address": a.Address}},
		{"peering", map[string]any{"enabled": true, "address": a.Address}},
		{"storage", storage},
	} {
		if err := sub(s.key, s.values); err != nil {
			return nil, err
		}
	}

	if a.API {
		if err := sub("api", map[string]any{"enabled": true}); err != nil {
			return nil, err
		}
	}

	var b bytes.Buffer
	b.WriteString(renderHead)
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(doc); err != nil {
		return nil, fmt.Errorf("write appliance.yaml: %w", err)
	}

	return b.Bytes(), nil
}
