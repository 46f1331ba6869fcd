"""Merge, move and rename modules of a Python tree by a plan, and rewrite every import of them.

    python merge_modules.py PLAN.toml [--root DIR]

A plan is TOML:

    [[module]]
    into = "qbench.judging.verdict"          # dotted target; may be one of the sources
    from = ["qbench.judging.verdict", "qbench.judging.judgement"]
    doc = "One measurement, what is expected of it, and the rules → one verdict."

    [rename]                                   # top-level names, by their OLD module
    "qbench.judging.statistics:Shown" = "Evidence"

Sources are ordered so that what is imported comes first; imports between them vanish; a private name that two sources
define is renamed in the later one. Top-level names of sources keep their text and their comments; the docstring of
a source becomes a comment above its section. Lazy doors (open_on_use tables), dotted paths in strings and in TOML
and paths of files in Markdown are rewritten. Run ``ruff check --fix --select I,F401`` and ``ruff format`` afterwards (done here).
"""

import argparse
import ast
import collections
import pathlib
import re
import subprocess
import sys
import textwrap
import tomllib

FOLDERS = ("qbench", "zoo", "tests", "benchmarks", "examples", "docs")


def module_name(path, root):
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def as_comment(doc):
    """A docstring as a comment block of at most 120 columns."""
    out = []
    for block in doc.split("\n\n"):
        lines = block.split("\n")
        if any(len(line) > 118 for line in lines):
            aligned = any("   " in line for line in lines)
            whole = lines if aligned else [" ".join(lines)]
            lines = [part for line in whole for part in textwrap.wrap(line, 118, drop_whitespace=True)]
        out += [*lines, ""]
    return "\n".join(("# " + line).rstrip() for line in out[:-1])


class Source:
    """One module: its text, top-level names, imports, and the lines of its body."""

    def __init__(self, path, name):
        self.path, self.name = path, name
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.lines = self.text.splitlines()

    def defined(self):
        names = {}
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    for leaf in ast.walk(target):
                        if isinstance(leaf, ast.Name):
                            names[leaf.id] = node
            elif isinstance(node, (ast.AnnAssign, ast.TypeAlias if hasattr(ast, "TypeAlias") else ast.AnnAssign)):
                target = node.target if isinstance(node, ast.AnnAssign) else node.name
                if isinstance(target, ast.Name):
                    names[target.id] = node
        return names


def is_type_checking(node):
    return isinstance(node, ast.If) and (
        (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
        or (isinstance(node.test, ast.Attribute) and node.test.attr == "TYPE_CHECKING")
    )


def segment(source, node):
    """Lines of a top-level node with decorators, as text."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(source.lines[first - 1 : node.end_lineno])


def replace_spans(text, spans):
    """spans: (line, col, end_line, end_col, new) with byte columns."""
    lines = text.split("\n")
    for line, col, end_line, end_col, new in sorted(set(spans), reverse=True):
        assert line == end_line, (line, end_line, new)
        raw = lines[line - 1].encode()
        lines[line - 1] = (raw[:col] + new.encode() + raw[end_col:]).decode()
    return "\n".join(lines)


class _Locals(ast.NodeVisitor):
    """Collect Name nodes that refer to a module-level name (not shadowed by a function's own binding)."""

    def __init__(self, wanted):
        self.wanted, self.found, self.stack = wanted, [], []

    def _bound(self, node):
        bound, declared = set(), set()
        args = node.args
        for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
            if arg is not None:
                bound.add(arg.arg)
        body = node.body if isinstance(node.body, list) else [node.body]
        todo = list(body)
        while todo:
            item = todo.pop()
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bound.add(item.name)
                continue
            if isinstance(item, ast.Lambda):
                continue
            if isinstance(item, ast.Name) and isinstance(item.ctx, (ast.Store, ast.Del)):
                bound.add(item.id)
            if isinstance(item, ast.Global):
                declared |= set(item.names)
            if isinstance(item, (ast.Import, ast.ImportFrom)):
                bound |= {(a.asname or a.name).split(".")[0] for a in item.names}
            if isinstance(item, ast.ExceptHandler) and item.name:
                bound.add(item.name)
            todo.extend(ast.iter_child_nodes(item))
        return bound - declared

    def _function(self, node):
        for decorator in getattr(node, "decorator_list", []):
            self.visit(decorator)
        for default in [*node.args.defaults, *[d for d in node.args.kw_defaults if d]]:
            self.visit(default)
        for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]:
            if arg is not None and arg.annotation:
                self.visit(arg.annotation)
        if getattr(node, "returns", None):
            self.visit(node.returns)
        self.stack.append(self._bound(node))
        for item in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(item)
        self.stack.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function

    def visit_Name(self, node):
        if node.id in self.wanted and not any(node.id in bound for bound in self.stack):
            self.found.append(
                (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, self.wanted[node.id])
            )

    def visit_Constant(self, node):
        # quoted annotations: "Bench | None"
        if isinstance(node.value, str) and node.lineno == node.end_lineno and len(node.value) < 120:
            for old, new in self.wanted.items():
                if (
                    re.fullmatch(r"[\w\[\], |.\"]*", node.value)
                    and re.search(rf"\b{re.escape(old)}\b", node.value)
                    and getattr(node, "_annotation", False)
                ):
                    pass


def rename_globals(text, wanted):
    """``text`` with its module-level names renamed wherever they are used."""
    if not wanted:
        return text
    tree = ast.parse(text)
    finder = _Locals(wanted)
    finder.visit(tree)
    spans = list(finder.found)
    lines = text.split("\n")
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name in wanted:
            raw = lines[node.lineno - 1]
            at = re.compile(rf"\b(def|class)\s+{node.name}\b").search(raw)
            start = len(raw[: at.end() - len(node.name)].encode())
            spans.append((node.lineno, start, node.lineno, start + len(node.name.encode()), wanted[node.name]))
    for node in ast.walk(tree):
        # annotations in quotes
        for annotation in [getattr(node, "annotation", None), getattr(node, "returns", None)]:
            if annotation is None:
                continue
            for leaf in ast.walk(annotation):
                if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and leaf.lineno == leaf.end_lineno:
                    new = leaf.value
                    for old, name in wanted.items():
                        new = re.sub(rf"(?<![\w.]){re.escape(old)}\b", name, new)
                    if new != leaf.value:
                        spans.append(
                            (leaf.lineno, leaf.col_offset, leaf.end_lineno, leaf.end_col_offset, '"' + new + '"')
                        )
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            for leaf in ast.walk(node.value):
                if isinstance(leaf, ast.Constant) and leaf.value in wanted:
                    spans.append(
                        (
                            leaf.lineno,
                            leaf.col_offset,
                            leaf.end_lineno,
                            leaf.end_col_offset,
                            '"' + wanted[leaf.value] + '"',
                        )
                    )
    return replace_spans(text, spans)


class Merger:
    def __init__(self, root, plan):
        self.root = root
        self.files = sorted(
            path for folder in FOLDERS for path in (root / folder).rglob("*.py") if "__pycache__" not in path.parts
        ) + [path for path in [root / "conftest.py"] if path.exists()]
        self.by_name = {module_name(path, root): path for path in self.files}
        self.moved, self.renamed, self.notes, self.fatal = {}, collections.defaultdict(dict), [], []
        self.plan, self.imported = plan, {}
        for entry in plan.get("module", []):
            for old in entry["from"]:
                if old not in self.by_name:
                    sys.exit(f"plan: no module {old}")
                if old in self.moved:
                    sys.exit(f"plan: {old} twice")
                self.moved[old] = entry["into"]
        for key, new in plan.get("rename", {}).items():
            module, _, name = key.partition(":")
            self.renamed[module][name] = new

    # ---------------------------------------------------------------- one target

    def order(self, names):
        wanted, result, state = set(names), [], {}
        needs = {}
        for name in names:
            source = Source(self.by_name[name], name)
            found = set()
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    for alias in node.names:
                        for candidate in (f"{node.module}.{alias.name}", node.module):
                            if candidate in wanted and candidate != name:
                                found.add(candidate)
            needs[name] = [n for n in names if n in found]

        def visit(name):
            if state.get(name) == 2:
                return
            if state.get(name) == 1:
                self.notes.append(f"circular sources: {name}")
                return
            state[name] = 1
            for other in needs[name]:
                visit(other)
            state[name] = 2
            result.append(name)

        for name in names:
            visit(name)
        return result

    def merge(self, entry):
        names = self.order(entry["from"])
        sources = [Source(self.by_name[name], name) for name in names]
        taken, bodies, imports, checking, same, twins = {}, [], [], [], {}, {}
        alone = len(sources) == 1
        for source in sources:
            stem = source.name.rsplit(".", 1)[-1].strip("_")
            wanted = dict(self.renamed.get(source.name, {}))
            for name in source.defined():
                new = wanted.get(name, name)
                if new in taken and taken[new] != source.name:
                    here, there = segment(source, source.defined()[name]), same.get(new)
                    if here == there and not here.startswith(("class", "def", "@")):
                        twins.setdefault(source.name, set()).add(name)  # the very same alias or constant: kept once
                        continue
                    if name.startswith("_") and not name.startswith("__"):
                        bare = name.lstrip("_")
                        if name.isupper():
                            new = f"_{stem.upper()}_{bare}"
                        elif bare[:1].isupper():
                            new = "_" + "".join(w.title() for w in stem.split("_")) + bare
                        else:
                            new = f"_{stem}_{bare}"
                        self.notes.append(f"{entry['into']}: {source.name}:{name} → {new}")
                        wanted[name] = new
                    elif name not in ("__all__",):
                        self.fatal.append(
                            f"{entry['into']}: public {name} in {taken[new]} and {source.name}: rename one in the plan"
                        )
                taken[new] = source.name
                same[new] = segment(source, source.defined()[name])
            if wanted:
                self.renamed[source.name].update(wanted)
        for source in sources:
            wanted = dict(self.renamed.get(source.name, {}))
            local = {}
            # names imported from sibling sources under an alias or renamed
            for node in source.tree.body:
                if isinstance(node, ast.ImportFrom) and node.module in names:
                    for alias in node.names:
                        target = self.renamed.get(node.module, {}).get(alias.name, alias.name)
                        shown = alias.asname or alias.name
                        if shown != target:
                            local[shown] = target
            modules = {}
            for node in ast.walk(source.tree):
                if isinstance(node, ast.ImportFrom):
                    for alias in node.names:
                        if f"{node.module}.{alias.name}" in names:
                            modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            text = self.flatten(source.text, modules) if modules else source.text
            text = rename_globals(text, {**wanted, **local})
            source.text, source.tree, source.lines = text, ast.parse(text), text.split("\n")
            body_start = 0
            drop = []
            for index, node in enumerate(source.tree.body):
                first_doc = (
                    index == 0 and isinstance(node, ast.Expr) and isinstance(getattr(node, "value", None), ast.Constant)
                )
                if first_doc:
                    drop.append((node.lineno, node.end_lineno))
                elif isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
                    isinstance(t, ast.Name) and t.id in twins.get(source.name, ())
                    for t in (node.targets if isinstance(node, ast.Assign) else [node.target])
                ):
                    drop.append((node.lineno, node.end_lineno))
                elif isinstance(node, (ast.Import, ast.ImportFrom)):
                    drop.append((node.lineno, node.end_lineno))
                    self.collect(node, names, imports, source)
                elif is_type_checking(node) and not node.orelse:
                    drop.append((node.lineno, node.end_lineno))
                    for inner in node.body:
                        if isinstance(inner, (ast.Import, ast.ImportFrom)):
                            self.collect(inner, names, checking, source)
                        else:
                            self.notes.append(f"{source.name}: statement in TYPE_CHECKING")
            kept = [line for number, line in enumerate(source.lines, 1) if not any(a <= number <= b for a, b in drop)]
            body = "\n".join(kept).strip("\n")
            body = self.drop_inner_imports(body, names)
            doc = ast.get_docstring(source.tree) or ""
            bodies.append((source.name, doc, body))
        target = entry["into"]
        for (shown, name), whole in self.imported.items():
            if name in names and shown in taken and taken[shown] != name and whole.rpartition(".")[0] not in names:
                self.fatal.append(
                    f"{entry['into']}: {name} imports {whole} as {shown}, which {taken[shown]} defines: rename it in the plan"
                )
        mine = [(key, whole) for key, whole in self.imported.items() if key[1] in names]
        for (shown, name), whole in mine:
            for (other, name2), whole2 in mine:
                if shown == other and name in names and name2 in names and whole != whole2 and name < name2:
                    a, b = (w.rpartition(".") for w in (whole, whole2))
                    if (self.moved.get(a[0], a[0]), self.renamed.get(a[0], {}).get(a[2], a[2])) != (
                        self.moved.get(b[0], b[0]),
                        self.renamed.get(b[0], {}).get(b[2], b[2]),
                    ):
                        self.notes.append(
                            f"{entry['into']}: '{shown}' is {whole} in {name} and {whole2} in {name2}: LOOK"
                        )
        path = self.root / (target.replace(".", "/") + ".py")
        if entry.get("package"):
            path = self.root / target.replace(".", "/") / "__init__.py"
        main_doc = entry.get("doc") or (bodies[-1][1] if not alone else bodies[0][1])
        parts = [f'"""{main_doc.rstrip()}{chr(10) if chr(10) in main_doc.rstrip() else ""}"""', ""]
        imports = sorted(set(imports))
        parts += imports
        if checking:
            known = set(imports)
            left = sorted(set(line for line in checking if line not in known))
            if left:
                parts += ["from typing import TYPE_CHECKING", "", "if TYPE_CHECKING:"]
                parts += [textwrap.indent(line, "    ") for line in left]
        parts.append("")
        for name, doc, body in bodies:
            if not alone and doc and doc != main_doc:
                comment = as_comment(doc)
                parts += ["", "", comment, ""]
            parts.append(body)
        return path, "\n".join(parts) + "\n"

    def flatten(self, text, modules):
        """``module.name`` of a sibling that joins this file becomes ``name``."""
        spans = []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                new = self.renamed.get(modules[node.value.id], {}).get(node.attr, node.attr)
                spans.append((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, new))
        return replace_spans(text, spans)

    def collect(self, node, names, into, source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                into.append(f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else ""))
            return
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            if node.module in names:
                continue
            if whole in names:
                continue
            shown = alias.asname or alias.name
            if not whole.startswith("qbench") or True:
                self.imported[(shown, source.name)] = whole
            if node.module == "typing" and alias.name == "TYPE_CHECKING":
                continue
            into.append(f"from {node.module} import {alias.name}" + (f" as {alias.asname}" if alias.asname else ""))

    def drop_inner_imports(self, body, names):
        """Imports inside functions from siblings vanish."""
        tree = ast.parse(body)
        lines = body.split("\n")
        dead = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in names and node.col_offset > 0:
                renamed = self.renamed.get(node.module, {})
                if any(alias.asname or renamed.get(alias.name, alias.name) != alias.name for alias in node.names):
                    self.notes.append(f"inner import with alias or rename of {node.module}: look at it")
                dead |= set(range(node.lineno, node.end_lineno + 1))
        return "\n".join(line for number, line in enumerate(lines, 1) if number not in dead)

    # ---------------------------------------------------------------- all importers

    def rewrite_importer(self, path):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        edits, renames = [], {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                groups, changed = collections.OrderedDict(), False
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    if whole in self.moved and whole in self.by_name:  # a module imported as a name
                        new = self.moved[whole]
                        package, _, stem = new.rpartition(".")
                        changed = changed or new != whole
                        shown = alias.asname or alias.name
                        groups.setdefault(package, []).append(stem + (f" as {shown}" if shown != stem else ""))
                        continue
                    module = self.moved.get(node.module, node.module)
                    name = self.renamed.get(node.module, {}).get(alias.name, alias.name)
                    if (
                        node.module not in self.moved
                        and node.module in self.doors
                        and alias.name in self.doors[node.module]
                    ):
                        name = self.doors[node.module][alias.name]
                    changed = changed or module != node.module or name != alias.name
                    shown = alias.asname or alias.name
                    if name != alias.name and not alias.asname:
                        renames[alias.name] = name
                        groups.setdefault(module, []).append(name)
                    elif alias.asname == alias.name and name != alias.name:
                        renames[alias.name] = name
                        groups.setdefault(module, []).append(f"{name} as {name}")
                    else:
                        groups.setdefault(module, []).append(name + (f" as {shown}" if alias.asname else ""))
                if changed:
                    indent = " " * node.col_offset
                    lines = []
                    for module, parts in groups.items():
                        one = f"{indent}from {module} import {', '.join(parts)}"
                        if len(one) > 120:
                            one = (
                                f"{indent}from {module} import (\n"
                                + "".join(f"{indent}    {p},\n" for p in parts)
                                + f"{indent})"
                            )
                        lines.append(one)
                    comment = ""
                    last = text.split("\n")[node.end_lineno - 1]
                    tail = last.encode()[node.end_col_offset :].decode()
                    if "#" in tail:
                        comment = "  " + tail.strip()
                    edits.append((node.lineno, node.end_lineno, "\n".join(lines) + comment))
            elif isinstance(node, ast.Import):
                if any(alias.name in self.moved and self.moved[alias.name] != alias.name for alias in node.names):
                    indent = " " * node.col_offset
                    new = ", ".join(
                        self.moved.get(a.name, a.name) + (f" as {a.asname}" if a.asname else "") for a in node.names
                    )
                    edits.append((node.lineno, node.end_lineno, f"{indent}import {new}"))
        lines = text.split("\n")
        for first, last, new in sorted(edits, reverse=True):
            lines[first - 1 : last] = new.split("\n")
        text = "\n".join(lines)
        if renames:
            safe = {old: new for old, new in renames.items()}
            text = rename_globals(text, safe)
        return self.rewrite_strings(text)

    def rewrite_strings(self, text):
        for old, new in self.string_moves:
            if old in text:
                text = re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w])(?!\.\w*\.py)", new, text)
        for old, new in self.path_moves:
            if old in text:
                text = text.replace(old, new)
        return text

    def rewrite_door(self, path, text):
        """Keys of open_on_use tables are module names below the package."""
        if "open_on_use" not in text:
            return text
        package = module_name(path, self.root)
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "open_on_use":
                table = ast.literal_eval(node.args[1])
                new = collections.OrderedDict()
                for stem, names in table.items():
                    old = f"{package}.{stem}"
                    target = self.moved.get(old, old)
                    if not target.startswith(package + "."):
                        self.notes.append(f"door {package}: {old} left the package to {target}")
                        continue
                    key = target.removeprefix(package + ".")
                    renamed = self.renamed.get(old, {})
                    new.setdefault(key, []).extend(renamed.get(name, name) for name in names)
                body = (
                    "{\n"
                    + "".join(
                        f'            "{key}": ({", ".join(chr(34) + n + chr(34) for n in sorted(set(names)))},),\n'
                        for key, names in new.items()
                    )
                    + "        }"
                )
                dict_node = node.args[1]
                lines = text.split("\n")
                head = lines[dict_node.lineno - 1].encode()[: dict_node.col_offset].decode()
                tail = lines[dict_node.end_lineno - 1].encode()[dict_node.end_col_offset :].decode()
                lines[dict_node.lineno - 1 : dict_node.end_lineno] = (head + body + tail).split("\n")
                return "\n".join(lines)
        return text

    def texts(self, merged):
        targets = {entry["into"] for entry, _ in merged.values()}
        for name, path in self.by_name.items():
            if name not in self.moved and name.startswith(("qbench", "zoo")) and name not in targets:
                yield name, path.read_text(encoding="utf-8")
        for entry, text in merged.values():
            yield entry["into"], text

    def cycles(self, texts):
        """Groups of modules that import each other when loaded, after the plan; doors (packages) are left out."""
        edges = {}
        for name, text in texts.items():
            found = set()
            for node in ast.parse(text).body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    for alias in node.names:
                        for candidate in (f"{node.module}.{alias.name}", node.module):
                            candidate = self.moved.get(candidate, candidate)
                            if candidate in texts and candidate != name:
                                found.add(candidate)
                                break
            edges[name] = found
        index, low, stack, on, out, counter = {}, {}, [], set(), [], [0]

        def strong(v):
            index[v] = low[v] = counter[0]
            counter[0] += 1
            stack.append(v)
            on.add(v)
            for w in edges[v]:
                if w not in index:
                    strong(w)
                    low[v] = min(low[v], low[w])
                elif w in on:
                    low[v] = min(low[v], index[w])
            if low[v] == index[v]:
                group = []
                while True:
                    w = stack.pop()
                    on.discard(w)
                    group.append(w)
                    if w == v:
                        break
                if len(group) > 1:
                    out.append(group)

        sys.setrecursionlimit(10000)
        for v in edges:
            if v not in index:
                strong(v)
        lines = []
        for group in out:
            inside = [f"    {a} -> {b}" for a in sorted(group) for b in sorted(edges[a]) if b in group]
            lines.append("circle:\n" + "\n".join(inside))
        return lines

    def run(self):
        # names that packages offer under renamed names
        self.doors = collections.defaultdict(dict)
        self.string_moves = sorted(
            ((old, new) for old, new in self.moved.items() if old != new), key=lambda pair: -len(pair[0])
        )
        self.path_moves = sorted(
            ((old.replace(".", "/") + ".py", new.replace(".", "/") + ".py") for old, new in self.string_moves),
            key=lambda pair: -len(pair[0]),
        )
        merged = {}
        for entry in self.plan.get("module", []):
            path, text = self.merge(entry)
            merged[path] = (entry, text)
        self.fatal += self.cycles({**{m: t for m, t in self.texts(merged)}})
        if self.fatal:
            sys.exit("not merged:\n" + "\n".join(sorted(set(self.fatal))))
        for path in self.files:
            if path.name == "__init__.py":
                package = module_name(path, self.root)
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.ImportFrom) and node.module in self.renamed:
                        for alias in node.names:
                            new = self.renamed[node.module].get(alias.name)
                            if new:
                                self.doors[package][alias.name] = new
        # packages that re-export a package's renamed names
        for old in list(self.renamed):
            for name, new in self.renamed[old].items():
                for package in list(self.doors):
                    pass
        sources = {self.by_name[old] for entry in self.plan.get("module", []) for old in entry["from"]}
        # move the largest source with git so that history follows it
        for path, (entry, _) in merged.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path not in sources or path.exists() is False:
                biggest = max((self.by_name[o] for o in entry["from"]), key=lambda p: len(p.read_text()))
                if not path.exists():
                    subprocess.run(["git", "mv", str(biggest), str(path)], cwd=self.root, check=True)
        for path in sources:
            if path.exists() and path not in merged:
                subprocess.run(["git", "rm", "-q", "-f", str(path)], cwd=self.root, check=True)
        for path, (entry, text) in merged.items():
            path.write_text(text, encoding="utf-8")
        targets = [p for p in self.files if p.exists() and p not in merged] + list(merged)
        for path in targets:
            before = path.read_text(encoding="utf-8")
            try:
                after = self.rewrite_importer(path)
            except Exception as error:
                sys.exit(f"{path}: {error!r}")
            if path.name == "__init__.py":
                after = self.rewrite_door(path, after)
            if after != before:
                path.write_text(after, encoding="utf-8")
        for path in [
            self.root / "pyproject.toml",
            self.root / "Makefile",
            self.root / "README.md",
            self.root / "CONTRIBUTING.md",
            *(self.root / "docs").rglob("*.md"),
            *(self.root / "examples").rglob("*.md"),
            *(self.root / ".ci").iterdir(),
        ]:
            if path.is_file():
                before = path.read_text(encoding="utf-8")
                after = self.rewrite_strings(before)
                if after != before:
                    path.write_text(after, encoding="utf-8")
        changed = [str(path) for path in targets]
        ruff = [sys.executable, "-m", "ruff"]
        subprocess.run([*ruff, "check", "-q", "--fix", "--select", "I,F401,F811", *changed], cwd=self.root, check=False)
        subprocess.run([*ruff, "format", "-q", *changed], cwd=self.root, check=False)
        print("\n".join(self.notes))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path.cwd())
    arguments = parser.parse_args()
    Merger(arguments.root.resolve(), tomllib.loads(arguments.plan.read_text())).run()


if __name__ == "__main__":
    main()
