def git_pillars(opts, entries):
    """
    Lets ext_pillar: git read what the master has fetched and checked out, instead of
    fetching: for each entry a list of environment, directory, and whether it is mounted.
    """
    import salt.utils.gitfs

    configured = [e["git"] for e in opts.get("ext_pillar") or [] if isinstance(e, dict) and "git" in e]

    class Dirs(list):
        """Pairs: two branches of the same content have one directory."""

        def items(self):
            return self

    class GitPillar:
        def __init__(self, opts, remotes=None, **kwargs):
            self.entry = []
            if remotes in configured and len(configured) == len(entries):
                self.entry = entries[configured.index(remotes)]

        def checkout(self, fetch_on_fail=True):
            self.pillar_dirs = Dirs((path, env) for env, path, _ in self.entry)
            self.pillar_linked_dirs = [path for _, path, mounted in self.entry if mounted]

        def fetch_remotes(self, remotes=None):
            return False

    salt.utils.gitfs.GitPillar = GitPillar


