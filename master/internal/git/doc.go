// Package git keeps copies of git repositories for file server and pillars, and reads their
// content.
//
// The program git fetches, with the ssh, known_hosts, certificates, proxies and authorities of the
// host. A long-lived `git cat-file --batch` reads objects (docs/decisions/0012-git.md). A [Store]
// has one bare [Repository] for each remote, shared by all who name the same remote. Each fetch
// that finds something new makes a [Snapshot], which never changes and replaces the last one in one
// step. After a failed fetch the last one stays in service.
//
// A remote is hostile. The number of refs, and the size of the repository, of trees, paths and
// files are bounded ([Limits]). Names that could lead out of a directory are ignored, the disk
// never follows links, no hook, filter or submodule is ever run, and only the protocol of the
// remote's URL is spoken. Names from minions (environments and files) are only ever compared with
// names of refs and trees.
//
// One process owns the directory of a Store. There are no locks: the remains of a killed fetch are
// removed at the start and before each fetch. All methods may be called concurrently.
package git
