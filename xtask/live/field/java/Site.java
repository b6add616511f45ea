import io.spanprof.Spanprof;
import io.spanprof.servlet.SpanprofFilter;
import jakarta.servlet.ServletContext;
import jakarta.servlet.ServletContextEvent;
import jakarta.servlet.ServletContextListener;
import jakarta.servlet.annotation.WebListener;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** A web application of {@link TomcatServer}: starts spanprof when it is deployed, stops it when it is undeployed. */
@WebListener
public final class Site implements ServletContextListener {
    private boolean isProfiled;

    /** Called by the server. */
    public Site() {}

    @Override
    public void contextInitialized(ServletContextEvent event) {
        ServletContext context = event.getServletContext();
        isProfiled = Profiled.start();
        if (isProfiled) {
            context.addFilter("labels", new SpanprofFilter()).addMappingForUrlPatterns(null, false, "/*");
        }
        context.addServlet("pages", new Pages()).addMapping("/early/*", "/late/*");
    }

    @Override
    public void contextDestroyed(ServletContextEvent event) {
        if (isProfiled) {
            Spanprof.stop();
        }
    }

    /** Responses depend only on the path. */
    static final class Pages extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            Work.fieldWork(40);
            String path = request.getRequestURI();
            response.getWriter().print(path + ": " + path.chars().sum());
        }
    }
}
