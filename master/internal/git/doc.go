// Package git keeps copies of git repositories for the file server and pillars, and reads their
// content.
//
// The program git does the fetching, with the host's ssh, known_hosts, certificate authorities and
// proxies. A long-lived `git cat-file --batch` process reads objects (docs/decisions/0012-git.md). A
// [Store] has one bare [Repository] for each remote; all users of equal remotes share one. A fetch
// that finds changes creates a new [Snapshot], which never changes and replaces the previous snapshot
// in one step. After a failed fetch the store continues to serve the previous snapshot.
//
// A remote may be hostile. The number of refs, and the sizes of the repository, of trees, paths and
// files are bounded ([Limits]). Names that could lead out of a directory are ignored, links are not
// followed on disk, no hook, filter or submodule is ever run, and git may use only the protocol of
// the remote's URL. Names from minions (environments and files) are only compared with names of refs
// and trees.
//
// Only one process may own the directory of a Store. So there are no locks: remains of a killed fetch
// are removed at the start and before each fetch. All methods may be called concurrently.
package git
