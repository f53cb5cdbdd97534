import shutil
from pathlib import Path
from playwright.sync_api import sync_playwright
base=Path("/tmp/wt/site/site").as_uri()
with sync_playwright() as pw:
    b=pw.chromium.launch(executable_path=shutil.which("chromium"), chromium_sandbox=False)
    p=b.new_page(viewport={"width":1400,"height":1500})
    for n,u in [("store","operations/state-store.html"),("fail","operations/failures.html"),("api2","reference/api.html#gobblin_dagster.core.constructs.Source"),("chg","CHANGELOG.html")]:
        p.goto(f"{base}/{u}"); p.wait_for_timeout(500); p.screenshot(path=f"/dev/shm/site/shots/{n}.png")
    b.close()
